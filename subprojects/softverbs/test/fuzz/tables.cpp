// SPDX-License-Identifier: Apache-2.0
/// \file A libFuzzer target. A peer writes arbitrary data to its tables of queue pairs and regions,
/// even while this process reads them. Nevertheless, this process's requests must change only those
/// parts of its own memory that they are supposed to fill, and must complete at most once.
///
/// The peer is a child process that is suspended forever. Its memory is the target of the requests.
/// This process itself fills the memory that the peer shares, and sends the peer's messages.

#include "memory/published_tables.hpp"
#include "memory/region_table.hpp"
#include "queue_pair/operation.hpp"
#include "victim.hpp"
#include "wire/greeting.hpp"
#include "wire/slot_socket.hpp"
#include "wire/wire.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <span>
#include <thread>
#include <vector>

using namespace softverbs;
using fuzz::require;

namespace {

constexpr unsigned most_turns = 24;
constexpr std::uint32_t index_of_pair = 77;
constexpr std::uint32_t index_of_region = 5;
constexpr std::uint32_t key_of_region = index_of_region << 8 | 3;
constexpr std::uint64_t mark = 0x1234'5678'9abc'def0;
/// The address at which the peer claims to have its device memory.
constexpr std::uint64_t device_memory_there = std::uint64_t{1} << 40;

/// The peer's memory. The peer is a child process, so this memory is at the same address there.
struct alignas(4096) peer_memory {
  std::array<std::byte, std::size_t{64} * 1024> registered;
  std::uint64_t mark_there;
};
peer_memory there;

/// The words of a table, for a writer that ignores the rules for writing tables.
using words = std::span<std::atomic<std::uint64_t>>;

template <typename Place>
words words_of(Place& place) {
  return {reinterpret_cast<std::atomic<std::uint64_t>*>(&place), sizeof(place) / 8};
}

/// The peer. It is a child process, but softverbs treats it as an unrelated process.
class hostile_peer {
 public:
  static hostile_peer& only() {
    static hostile_peer made;
    return made;
  }
  hostile_peer(const hostile_peer&) = delete;
  hostile_peer& operator=(const hostile_peer&) = delete;

  std::uint32_t pair() const noexcept { return slot_ << wire::index_bits | index_of_pair; }

  /// Publishes correct data about a region, and about a queue pair that is connected to `peer`.
  void be_honest(const ibv_qp& peer, bool in_device_memory);
  /// Performs the child's part of the handshake that takes place when this process connects.
  void answer();
  /// Writes false data to the shared memory.
  void lie(fuzz::input& said);
  /// Starts or ends a thread that alternates between false and correct data.
  void waver(bool on);
  void say(notice::kind what) const {
    if (connected_ >= 0) send_notice(connected_, what);
  }

 private:
  hostile_peer();
  std::array<words, 3> said() noexcept {
    return {words_of(tables().pairs[index_of_pair]), words_of(tables().regions[index_of_region]),
            words{reinterpret_cast<std::atomic<std::uint64_t>*>(&tables()), 4}};
  }
  published_tables& tables() const noexcept {
    return *reinterpret_cast<published_tables*>(tables_.bytes().data());
  }
  void take_turns();

  int listener_ = -1;
  int connected_ = -1;
  pid_t child_ = -1;
  std::uint32_t slot_ = 0;
  shared_memory tables_;
  shared_memory device_memory_;
  shared_memory pair_;
  std::array<std::vector<std::uint64_t>, 3> truth_;
  std::array<std::vector<std::uint64_t>, 3> lies_;
  std::atomic<bool> wavers_{false};
  std::thread turns_;
};

hostile_peer::hostile_peer() {
  listener_ = open_socket();
  for (slot_ = wire::last_slot;; --slot_) {
    require(slot_ != 0);
    const slot_name name(slot_);
    if (::bind(listener_, name.get(), name.length) == 0) break;
  }
  std::array<int, 2> ready{};
  require(::pipe(ready.data()) == 0);
  child_ = ::fork();
  require(child_ >= 0);
  if (child_ == 0) {
    // The kernel reports the process that called `listen` as the peer, so the child must call
    // `listen` itself.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (::listen(listener_, 16) == 0) static_cast<void>(!::write(ready[1], "", 1));
    for (;;) ::pause();
  }
  char byte = 0;
  require(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  require(tables_.create(sizeof(published_tables), shared_memory::others::only_read) == 0);
  require(device_memory_.create(device_memory_bytes, shared_memory::others::write) == 0);
}

void hostile_peer::be_honest(const ibv_qp& peer, bool in_device_memory) {
  published_tables& say = tables();
  std::uint64_t value = mark;
  const iovec from{&value, sizeof(value)};
  const iovec to{&there.mark_there, sizeof(value)};
  require(::process_vm_writev(child_, &from, 1, &to, 1, 0) == sizeof(value));
  say.faulty = 0;
  say.mark = mark;
  say.address_of_mark = reinterpret_cast<std::uintptr_t>(&there.mark_there);
  say.device_memory = device_memory_there;
  auto& pair = say.pairs[index_of_pair];
  auto& region = say.regions[index_of_region];
  // Constructs both entries again, so that their version numbers start from the beginning.
  new (&pair) published_tables::pair_place{};
  new (&region) published<shown_region>{};
  constexpr unsigned rights =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  pair.shown.show(
      {hostile_peer::pair(), peer.qp_num, 1, rights, service::of(peer.qp_type), 2, {}, {}, 16, 1});
  pair.expected_psn = fuzz::victim::psn;
  // In device memory, the region is at the end, so there is no memory beyond it.
  const std::uint64_t memory =
      in_device_memory ? device_memory_there + device_memory_bytes - sizeof(there.registered)
                       : reinterpret_cast<std::uintptr_t>(there.registered.data());
  region.show(
      {key_of_region, rights, 1, 0, 0x1000, sizeof(there.registered), memory, 0, in_device_memory});
  const auto now_said = said();
  for (std::size_t part = 0; part < now_said.size(); ++part)
    truth_[part].assign(now_said[part].begin(), now_said[part].end());
}

void hostile_peer::answer() {
  for (;;) {
    const int connected = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connected < 0) break;
    if (connected_ >= 0) ::close(connected_);
    connected_ = connected;
  }
  if (connected_ < 0) return;
  std::array<std::byte, 64> message;
  descriptors attached;
  const ssize_t length = attached.receive(connected_, message.data(), message.size());
  if (length != sizeof(notice) || attached.first() < 0) return;
  require(pair_.map(attached.first(), pair_memory::bytes, true) == 0);
  notice answer{};
  answer.what = notice::kind::answer;
  answer.accepted = 1;
  send_notice(connected_, answer, {tables_.descriptor(), device_memory_.descriptor()});
}

void hostile_peer::lie(fuzz::input& from) {
  const unsigned where = from.below(4);
  std::uint64_t value = 0;
  const unsigned at = from.take<std::uint8_t>();
  const unsigned how = from.below(4);
  if (where == 3) {
    // Writes to the positions and flags of the ring, or to the announcements after the ring.
    if (pair_.bytes().empty()) return;
    value = from.take<std::uint64_t>();
    const std::size_t place = at < 128 ? at % 8 * 64 : pair_memory::hazards + (at - 128) * 64;
    std::memcpy(pair_.bytes().data() + place, &value, sizeof(value));
    return;
  }
  const words part = said()[where];
  auto& word = part[at % part.size()];
  switch (how) {
    case 0:
      value = from.take<std::uint64_t>();
      break;
    case 1:
      value = word + from.take<std::uint16_t>() - 0x8000U;
      break;
    case 2:
      value = word ^ std::uint64_t{1} << from.below(64);
      break;
    default:
      value = word ^ std::uint64_t{from.take<std::uint8_t>()} << 8 * from.below(8);
  }
  word = value;
}

void hostile_peer::waver(bool on) {
  if (on) {
    const auto now_said = said();
    for (std::size_t part = 0; part < now_said.size(); ++part)
      lies_[part].assign(now_said[part].begin(), now_said[part].end());
    wavers_ = true;
    turns_ = std::thread([this] { take_turns(); });
    return;
  }
  wavers_ = false;
  turns_.join();
}

void hostile_peer::take_turns() {
  const auto now_said = said();
  do {
    for (const auto& what : {&truth_, &lies_})
      for (std::size_t part = 0; part < now_said.size(); ++part)
        for (std::size_t at = 0; at < now_said[part].size(); ++at)
          now_said[part][at] = (*what)[part][at];
  } while (wavers_);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  // The child must be created while this process still has a single thread.
  hostile_peer::only();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t length) {
  constexpr std::array whats{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                             IBV_WR_ATOMIC_FETCH_AND_ADD};
  constexpr std::size_t filled = 256;
  constexpr std::uint32_t most_filled = 4096;
  fuzz::device& home = fuzz::device::only();
  hostile_peer& peer = hostile_peer::only();
  fuzz::input said(bytes, length);
  {
    const unsigned first = said.take<std::uint8_t>();
    fuzz::victim on((first & 2) == 0 ? IBV_QPT_RC : IBV_QPT_UC, peer.pair(), false);
    home.begin();
    peer.be_honest(*on.pair, (first & 1) != 0);
    for (unsigned turn = 0; turn < most_turns && !said.is_empty(); ++turn) {
      switch (said.below(8)) {
        case 0:
        case 1:
        case 2:
          peer.lie(said);
          break;
        case 3:
          peer.say(static_cast<notice::kind>(0x80 + said.below(6)));
          break;
        default: {
          const ibv_wr_opcode what = whats[said.below(whats.size())];
          const bool on_word = what != IBV_WR_RDMA_WRITE && what != IBV_WR_RDMA_READ;
          const std::uint32_t size = on_word ? 8 : said.take<std::uint16_t>() % (most_filled + 1);
          const std::uint64_t remote = 0x1000 + said.take<std::uint8_t>() * std::uint64_t{8};
          const bool wavers = said.below(4) == 0;
          if (wavers) peer.waver(true);
          on.post(what, home.piece(filled, size), remote, remote_key_bit | key_of_region);
          for (unsigned step = 0; step < 4; ++step) {
            on.poll();
            peer.answer();
          }
          if (wavers) peer.waver(false);
          on.poll();
        }
      }
    }
    on.poll();
  }
  home.check();
  const auto is_as_before = [](std::span<const std::byte> part) {
    return std::all_of(part.begin(), part.end(),
                       [](std::byte each) { return each == std::byte{0x11}; });
  };
  require(is_as_before(home.memory().first(filled)) &&
          is_as_before(home.memory().subspan(filled + most_filled)));
  return 0;
}
