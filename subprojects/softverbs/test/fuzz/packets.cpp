// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Arbitrary data arrives at softverbs' sockets, and in a ring in shared
/// memory. This data may break only the queue pair whose peer it claims to come from. Memory that
/// isn't registered must stay unchanged, and a posted request must complete at most once.
///
/// The sender is in the same process as the receiver, because its packets claim to come from there,
/// and softverbs checks that with the kernel's help. The device runs in single steps, so that an
/// input always has the same effect.

#include "device/environment.hpp"
#include "frame.hpp"
#include "victim.hpp"
#include "wire/address.hpp"
#include "wire/greeting.hpp"
#include "wire/network_header.hpp"
#include "wire/packet.hpp"
#include "wire/ring.hpp"
#include "wire/slot_socket.hpp"
#include "wire/wire.hpp"

#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

using namespace softverbs;
using fuzz::require;

namespace {

constexpr unsigned most_turns = 48;

int sealed_memory(std::size_t size) {
  const int made = ::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  require(made >= 0 && ::ftruncate(made, static_cast<off_t>(size)) == 0 &&
          ::fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  return made;
}

/// A connection to the device that is not made by softverbs itself.
class stranger {
 public:
  explicit stranger(std::uint32_t slot) {
    socket_ = open_socket();
    require(socket_ >= 0);
    const slot_name there(slot);
    // If the backlog is full, the connection fails, and nothing is sent.
    static_cast<void>(::connect(socket_, there.get(), there.length));
  }
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  ~stranger() {
    ::close(socket_);
    if (!shared_.empty()) ::munmap(shared_.data(), shared_.size());
  }

  void say(const void* bytes, std::size_t length) const {
    static_cast<void>(::send(socket_, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  void greet(bool rightly) {
    const int memory = sealed_memory(rightly ? pair_memory::bytes : 4096);
    if (rightly && shared_.empty()) {
      void* start =
          ::mmap(nullptr, pair_memory::bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
      require(start != MAP_FAILED);
      shared_ = {static_cast<std::byte*>(start), pair_memory::bytes};
    }
    notice greeting{};
    greeting.what = notice::kind::greeting;
    send_notice(socket_, greeting, {memory, -1});
    ::close(memory);
  }
  /// Receives one answer from the device, as a peer would, but ignores it.
  void hear() const {
    std::array<std::byte, 64> answer;
    descriptors attached;
    static_cast<void>(attached.receive(socket_, answer.data(), answer.size()));
  }
  void change_to_ring() {
    if (shared_.empty()) return;
    send_notice(socket_, notice::kind::changed_to_ring);
    if (!ring_) ring_.emplace(shared_.first(ring_end::bytes));
  }
  void write(std::span<const std::byte> message) {
    if (!ring_) return say(message.data(), message.size());
    std::byte* to = ring_->prepare(message.size());
    if (to == nullptr) return;
    std::memcpy(to, message.data(), message.size());
    if (ring_->publish()) send_notice(socket_, notice::kind::something_to_read);
  }
  void scribble(fuzz::input& said) {
    if (shared_.empty()) return;
    // Writes to the start of a cache line, because positions and messages start there.
    const std::size_t place = said.take<std::uint16_t>();
    const std::size_t at = said.below(2) == 0 ? place % ring_end::state_bytes / 64 * 64
                                              : ring_end::state_bytes + place * 64;
    const auto bytes = said.take_bytes(8);
    std::memcpy(shared_.data() + at % shared_.size(), bytes.data(), bytes.size());
  }

 private:
  int socket_ = -1;
  std::span<std::byte> shared_;
  std::optional<ring_writer> ring_;
};

/// Makes packets that are plausible for a queue pair, except where the input changes them.
class letter {
 public:
  letter(const fuzz::victim& to, std::uint32_t from, ibv_qp_type type) : to_(to), type_(type) {
    header_.flags = packet_flag::first | packet_flag::last;
    header_.network = 2;
    header_.target_qpn = to.pair->qp_num;
    header_.source_qpn = from;
    header_.key = type == IBV_QPT_UD ? fuzz::victim::qkey : fuzz::device::only().region->rkey;
    header_.address = reinterpret_cast<std::uintptr_t>(fuzz::device::only().memory().data());
    if (type == IBV_QPT_UC || type == IBV_QPT_UD) header_.flags |= packet_flag::unreliable;
    if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV) header_.flags |= packet_flag::xrc;
  }

  std::span<const std::byte> write(fuzz::input& said) {
    packet_header header = header_;
    constexpr std::array kinds{
        packet_kind::send,          packet_kind::write,        packet_kind::read_request,
        packet_kind::read_response, packet_kind::acknowledge,  packet_kind::refuse,
        packet_kind::datagram,      packet_kind::compare_swap, packet_kind::fetch_add,
        packet_kind::atomic_write,  packet_kind::flush,        packet_kind::frame};
    header.kind = kinds[said.below(kinds.size())];
    if (said.below(4) != 0) {
      if (type_ == IBV_QPT_UD) header.kind = packet_kind::datagram;
      if (type_ == IBV_QPT_RAW_PACKET) header.kind = packet_kind::frame;
    }
    const bool answers = header.kind == packet_kind::read_response ||
                         header.kind == packet_kind::acknowledge ||
                         header.kind == packet_kind::refuse;
    std::uint32_t& next = answers ? next_answer_ : next_request_;
    header.psn = next & psn_mask;
    const std::uint8_t changes = said.take<std::uint8_t>();
    if ((changes & ~128) == 0 && !answers) next_request_ += 1;
    if (answers) next_answer_ += said.below(3);
    const bool is_frame = header.kind == packet_kind::frame;
    if (is_frame) frame_ = fuzz::make_frame(said);
    header.payload = length_of(header.kind, said);
    header.message = header.payload;
    header.shared_queue = to_.shared_number(0);
    if (header.kind == packet_kind::read_request) header.message = said.take<std::uint16_t>();
    if (header.kind == packet_kind::refuse) header.reason = static_cast<refusal>(1 + said.below(5));
    // Changes parts of the header, such as the packet's position in a message of several packets.
    if ((changes & 1) != 0) header.flags = said.take<std::uint8_t>();
    if ((changes & 2) != 0) header.psn = header.psn + said.below(9) - 4;
    if ((changes & 4) != 0) header.offset = said.below(2) * packet_bytes;
    if ((changes & 8) != 0) header.address += said.take<std::uint16_t>() - std::uint64_t{0x8000};
    if ((changes & 16) != 0) header.message = said.take<std::uint32_t>();
    if ((changes & 32) != 0) header.payload = packet_bytes;
    if ((changes & 128) != 0) go_elsewhere(header, said);
    const std::uint32_t whole = header.payload;
    // Overwrites up to three bytes of the header.
    if ((changes & 64) != 0) {
      auto* raw = reinterpret_cast<std::uint8_t*>(&header);
      for (unsigned count = 1 + said.below(3); count > 0; --count) {
        const std::size_t at = said.below(sizeof(header));
        raw[at] = said.take<std::uint8_t>();
      }
    }
    bytes_.assign(sizeof(header) + whole, std::byte{0x5a});
    std::memcpy(bytes_.data(), &header, sizeof(header));
    const std::span content = std::span(bytes_).subspan(sizeof(header));
    if (is_frame) {
      copy(frame_, content);
    } else {
      if (header.target_qpn == multicast_qpn && content.size() >= sizeof(ibv_grh)) {
        ibv_grh network{};
        network.version_tclass_flow = htobe32(6U << 28);
        network.next_hdr = IPPROTO_UDP;
        network.dgid = fuzz::device::group(IBV_QPT_UD);
        std::memcpy(content.data(), &network, sizeof(network));
      }
      copy(said.take_bytes(std::min<std::size_t>(whole, 64)), content);
    }
    return bytes_;
  }
  /// The frame that was sent last.
  std::span<const std::uint8_t> frame() const noexcept { return frame_; }

 private:
  static void copy(std::span<const std::uint8_t> from, std::span<std::byte> to) {
    const std::size_t length = std::min(from.size(), to.size());
    if (length != 0) std::memcpy(to.data(), from.data(), length);
  }
  /// Addresses the packet to another shared receive queue, to a multicast group, or to a memory
  /// window, depending on the type of the queue pair.
  void go_elsewhere(packet_header& header, fuzz::input& said) const {
    if (type_ == IBV_QPT_XRC_RECV) {
      header.shared_queue = said.below(4) == 0 ? said.take<std::uint32_t>() : to_.shared_number(1);
    } else if (type_ == IBV_QPT_UD) {
      header.target_qpn = multicast_qpn;
      header.flags |= packet_flag::global;
      header.address = 0;
    } else {
      header.key = to_.window_key();
      header.address += fuzz::victim::window_start;
      if (header.kind == packet_kind::send) header.flags |= packet_flag::invalidate;
    }
  }
  std::uint32_t length_of(packet_kind kind, fuzz::input& said) const {
    if (kind == packet_kind::frame) return static_cast<std::uint32_t>(frame_.size());
    if (carries_operands(kind)) return sizeof(atomic_operands);
    if (kind == packet_kind::read_request || kind == packet_kind::acknowledge ||
        kind == packet_kind::refuse)
      return 0;
    const std::uint32_t some = said.take<std::uint8_t>() * std::uint32_t{8};
    return kind == packet_kind::datagram ? sizeof(network_header) + some : some;
  }

  const fuzz::victim& to_;
  ibv_qp_type type_;
  packet_header header_{};
  std::uint32_t next_request_ = fuzz::victim::peer_psn;
  std::uint32_t next_answer_ = fuzz::victim::psn;
  std::vector<std::uint8_t> frame_;
  std::vector<std::byte> bytes_;
};

void post(fuzz::input& said, fuzz::victim& on) {
  constexpr std::array whats{IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                             IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  const fuzz::device& home = fuzz::device::only();
  if (said.below(2) == 0) {
    const std::size_t offset = said.take<std::uint8_t>();
    return on.post_receive(offset, said.take<std::uint16_t>(), offset & 1);
  }
  const ibv_wr_opcode what = whats[said.below(whats.size())];
  const bool on_word = what == IBV_WR_ATOMIC_CMP_AND_SWP || what == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const std::uint32_t length = on_word ? 8 : said.take<std::uint16_t>();
  on.post(what, home.piece(said.take<std::uint8_t>(), length), 0x1000, home.region->rkey);
}

/// Changes objects that only some types of queue pairs use.
void arrange(fuzz::input& said, fuzz::victim& on, const letter& last) {
  on.bind_window();
  on.renew_shared(said.below(2));
  on.add_rule(fuzz::frame_rule(said, last.frame()).attributes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t length) {
  fuzz::device& home = fuzz::device::only();
  fuzz::input said(bytes, length);
  constexpr std::array types{IBV_QPT_RC,       IBV_QPT_UC,       IBV_QPT_UD,
                             IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET};
  const unsigned first = said.take<std::uint8_t>();
  ibv_qp_type type = types[first % types.size()];
  if (type == IBV_QPT_RAW_PACKET && !home.may_send_frames()) type = IBV_QPT_UD;
  {
    // Numbers are assigned in a cycle. This one is about half a cycle ahead, so it is not in use.
    static std::uint32_t runs = 0;
    const std::uint32_t absent =
        home.slot() << wire::index_bits | ((++runs + wire::index_mask / 2) & wire::index_mask);
    fuzz::victim on(type, absent, (first & 64) != 0);
    home.begin_steps(first);
    letter next(on, absent, type);
    std::optional<stranger> from(std::in_place, home.slot());
    for (unsigned turn = 0; turn < most_turns && !said.is_empty(); ++turn) {
      switch (said.below(16)) {
        case 0:
          from.emplace(home.slot());
          break;
        case 1:
          from->greet(said.below(4) != 0);
          break;
        case 2:
          from->change_to_ring();
          break;
        case 3:
          from->scribble(said);
          break;
        case 4: {
          const auto noise = said.take_bytes(said.take<std::uint8_t>());
          from->say(noise.data(), noise.size());
          break;
        }
        case 5: {
          notice some{};
          some.what = static_cast<notice::kind>(0x80 + said.below(6));
          some.accepted = 1;
          from->say(&some, sizeof(some));
          break;
        }
        case 6:
        case 7:
          post(said, on);
          break;
        case 8:
          fuzz::device::run(1 + said.below(32));
          from->hear();
          on.poll();
          break;
        case 12:
          arrange(said, on, next);
          break;
        default:
          from->write(next.write(said));
      }
    }
    fuzz::device::run(100);
    on.poll();
  }
  home.check();
  return 0;
}
