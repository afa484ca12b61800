// SPDX-License-Identifier: Apache-2.0
// Direct requests. The requester carries them out alone, including the work of the peer's device,
// with the same effect as packets. This is possible if everything that the peer would check is in
// the peer's tables.
#include "base/clock.hpp"
#include "base/passage.hpp"
#include "base/user_memory.hpp"
#include "machine/announcements.hpp"
#include "memory/protection_domain.hpp"
#include "memory/published_tables.hpp"
#include "memory/region_table.hpp"
#include "queue_pair/queue_pair_core.hpp"
#include "queue_pair/remote_atomic.hpp"
#include "queue_pair/requester.hpp"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>

namespace softverbs {
namespace {

/// The maximum size of a direct request, in bytes. It limits the time of the copy, because the
/// posting thread waits for the copy, and a thread that deregisters the region may have to wait as
/// well.
constexpr std::uint64_t longest = std::uint64_t{16} << 20;

/// The time for which a check of the peer's process remains valid. Later, the process ID may belong
/// to another process.
constexpr nanoseconds longest_trust = 1'000'000;

/// Returns the address of the bytes in the region's process. Returns 0 if they are not all in the
/// region, or if the region doesn't grant the right.
std::uint64_t find(const shown_region& region, std::uint64_t address, std::uint64_t length,
                   unsigned right) noexcept {
  if ((region.access & right) != right || address < region.start) return 0;
  const std::uint64_t offset = address - region.start;
  if (offset > region.length || length > region.length - offset) return 0;
  return region.memory + offset;
}

/// While this object exists, it announces to another process which of that process's objects are in
/// use.
class announced {
 public:
  announced(const remote_process* other, std::size_t thread, const announcements::use& of) noexcept
      : at_(other == nullptr ? std::span<std::byte>{} : other->hazards()),
        other_(other),
        thread_(thread) {
    if (other_ != nullptr) at_.begin(thread_, of);
  }
  announced(const announced&) = delete;
  announced& operator=(const announced&) = delete;
  ~announced() {
    if (other_ != nullptr) at_.end(thread_);
  }

 private:
  announcements at_;
  const remote_process* other_;
  std::size_t thread_;
};

bool is_done_directly(const operation& what) noexcept {
  return !what.local && what.carrier != packet_kind::send && what.carrier != packet_kind::flush;
}

}  // namespace

/// The local memory of one request.
struct requester::local_memory {
  std::array<iovec, limits::gather_entries> pieces;
  std::size_t count = 0;
};

bool requester::look_up(const request& work, local_memory& memory) noexcept {
  if (work.inlined) {
    memory.pieces[0] = {inline_of(next_), work.length};
    memory.count = 1;
    return true;
  }
  const unsigned right = work.fetches() ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
  const std::uint32_t domain = number_of(pair_.pd);
  const ibv_sge* entries = entries_of(next_);
  for (std::uint16_t entry = 0; entry < work.entries; ++entry) {
    const ibv_sge& piece = entries[entry];
    if (piece.length == 0) continue;
    const std::uint32_t index = piece.lkey >> key_index_shift;
    if (index >= pair_.tables().regions.size()) return false;
    const auto region = pair_.tables().regions[index].read();
    if (!region || region->key != piece.lkey || region->is_window != 0 || region->domain != domain)
      return false;
    const std::uint64_t place = find(*region, piece.addr, piece.length, right);
    if (place == 0) return false;
    memory.pieces[memory.count++] = {reinterpret_cast<void*>(place), piece.length};
  }
  return true;
}

bool requester::carry_out_directly(request& work) noexcept {
  const operation& what = work.what();
  const packet_kind kind = what.carrier;
  const bool on_word = is_atomic(kind);
  if (work.length > longest || (gives_value(kind) && work.length != atomic_bytes)) return false;
  if (work.fetches() && pair_.attributes().max_rd_atomic == 0) return false;

  const unsigned right = right_to(kind);
  const std::uint32_t target = pair_.attributes().dest_qp_num;
  const published_tables& tables = *pair_.peer_tables();
  const remote_process* const other = pair_.peer_process();
  const auto& place = tables.pairs[target & wire::index_mask];
  const auto peer = place.shown.read();
  if (!peer || peer->number != target || peer->peer != pair_.qp_num ||
      peer->service != service::of(pair_.qp_type) || peer->here != pair_.way().target ||
      peer->there != pair_.station_here() || (on_word && peer->has_atomics == 0) ||
      peer->network != static_cast<std::uint8_t>(pair_.way().network) ||
      (peer->access & right) != right || (work.fetches() && peer->fetches == 0))
    return false;
  // Without acknowledgements, it is unknown whether earlier packets have arrived, so a queue pair
  // that has sent packets continues to send packets.
  if (pair_.is_reliable() ? place.expected_psn.load(std::memory_order_acquire) != psn_ : used_wire_)
    return false;

  local_memory local;
  if (!look_up(work, local)) return false;
  const std::uint64_t length = on_word ? atomic_bytes : work.length;
  if (length == 0) return true;
  const std::uint32_t index = (work.rkey & ~remote_key_bit) >> key_index_shift;
  if ((work.rkey & remote_key_bit) == 0 || index >= tables.regions.size()) return false;
  const auto region = tables.regions[index].read();
  if (!region || region->key != (work.rkey & ~remote_key_bit) ||
      (region->pair != 0 ? region->pair != target : region->domain != peer->domain))
    return false;
  // Windows of another process are excluded, because a request that invalidates a window can't wait
  // for other processes that are using it.
  if (other != nullptr && region->is_window != 0) return false;
  const std::uint64_t remote = find(*region, work.remote_address, length, right);
  if (remote == 0 || (on_word && work.remote_address % atomic_bytes != 0)) return false;

  if (other == nullptr) return access_directly(work, local, reinterpret_cast<std::byte*>(remote));
  if (region->is_device_memory == 0) {
    // The kernel has no atomic operations on the memory of another process.
    return !on_word && copy_directly(work, *other, local, remote);
  }
  const std::span<std::byte> mapped = other->device_memory.bytes();
  const std::uint64_t offset = remote - tables.device_memory.load(std::memory_order_relaxed);
  if (offset > mapped.size() || length > mapped.size() - offset) return false;
  return pair_.is_same_process(*other) && access_directly(work, local, mapped.data() + offset);
}

bool requester::access_directly(request& work, const local_memory& local,
                                std::byte* memory) noexcept {
  const packet_kind kind = work.what().carrier;
  if (is_atomic(kind)) {
    const auto value = softverbs::carry_out(kind, work.operands, {memory, atomic_bytes});
    if (!value) return false;
    if (!gives_value(kind)) return true;
    const auto* from = reinterpret_cast<const std::byte*>(&*value);
    for (std::size_t piece = 0; piece < local.count; ++piece) {
      const iovec& to = local.pieces[piece];
      if (!user_memory::copy(to.iov_base, from, to.iov_len)) {
        // The operation has been carried out, and must not be repeated.
        work.failure = IBV_WC_LOC_PROT_ERR;
        return false;
      }
      from += to.iov_len;
    }
    return true;
  }
  for (std::size_t piece = 0; piece < local.count; ++piece) {
    const auto& [here, bytes] = local.pieces[piece];
    const bool copied = work.fetches() ? user_memory::copy(here, memory, bytes)
                                       : user_memory::copy(memory, here, bytes);
    if (!copied) return false;
    memory += bytes;
  }
  return true;
}

bool queue_pair_core::is_same_process(const remote_process& other) noexcept {
  const nanoseconds time = now();
  if (time - seen_peer_ < longest_trust) return true;
  const published_tables& tables = *peer_tables_;
  const std::uint64_t mark = tables.mark.load(std::memory_order_relaxed);
  std::uint64_t found = 0;
  const iovec here{&found, sizeof(found)};
  const iovec there{reinterpret_cast<void*>(tables.address_of_mark.load(std::memory_order_relaxed)),
                    sizeof(found)};
  if (mark == 0 ||
      ::syscall(SYS_process_vm_readv, other.process, &here, 1, &there, 1, user_memory::no_flags) !=
          sizeof(found) ||
      found != mark) {
    refuse_directly();
    return false;
  }
  seen_peer_ = time;
  return true;
}

bool requester::copy_directly(const request& work, const remote_process& other,
                              const local_memory& local, std::uint64_t remote) noexcept {
  if (!pair_.is_same_process(other)) return false;
  const iovec there{reinterpret_cast<void*>(remote), work.length};
  // The system calls are made directly, because sanitizers intercept libc's functions.
  const long copied =
      ::syscall(work.fetches() ? SYS_process_vm_readv : SYS_process_vm_writev, other.process,
                local.pieces.data(), local.count, &there, 1, user_memory::no_flags);
  return copied >= 0 && static_cast<std::uint64_t>(copied) == work.length;
}

bool queue_pair_core::pull(const packet& incoming, std::byte* to) {
  find_peer();
  if (!goes_directly() || other_ == nullptr) return false;
  const packet_header& header = incoming.header;
  std::uint64_t address = 0;
  std::memcpy(&address, incoming.payload, sizeof(address));
  const std::uint32_t index = header.source_key >> key_index_shift;
  const published_tables& tables = *peer_tables_;
  if (index >= tables.regions.size()) return false;
  const auto find_source = [&]() noexcept -> std::uint64_t {
    const auto peer = tables.pairs[attributes_.dest_qp_num & wire::index_mask].shown.read();
    const auto region = tables.regions[index].read();
    if (!peer || peer->number != attributes_.dest_qp_num || peer->peer != qp_num || !region ||
        region->key != header.source_key || region->is_window != 0 ||
        region->domain != peer->domain)
      return 0;
    return find(*region, address, header.payload, 0);
  };
  const std::uint64_t source = find_source();
  if (source == 0 || !is_same_process(*other_)) return false;
  const iovec into{to, header.payload};
  const iovec from{reinterpret_cast<void*>(source), header.payload};
  const long copied =
      ::syscall(SYS_process_vm_readv, other_->process, &into, 1, &from, 1, user_memory::no_flags);
  // If the sender has given up the request in the meantime, other data may have been read.
  return copied == static_cast<long>(header.payload) && find_source() == source;
}

bool requester::awaits_turn(const request& work) const noexcept {
  return oldest_ != next_ && pair_.is_reliable() && pair_.goes_directly() &&
         is_done_directly(work.what()) && !with_immediate(work.opcode) &&
         (pair_.peer_process() == nullptr || !is_atomic(work.what().carrier));
}

void requester::carry_out_directly() {
  // Requests that have been sent as packets must finish first.
  if (next_ == head_ || oldest_ != next_ || begun_ != next_ || !pair_.goes_directly()) return;
  passage* const here = passage::mine();
  if (here == nullptr) return;
  while (next_ != head_) {
    request& work = at(next_);
    if (!is_done_directly(work.what()) || with_immediate(work.opcode)) return;
    {
      const passing during(*here);
      // The check is repeated within the passage. At exit, a process marks its connections as
      // ended, and then waits until no thread is in its passage. A thread that enters its passage
      // later sees the mark.
      if (!pair_.goes_directly()) return;
      const announced also(pair_.peer_process(), here->number(),
                           {pair_.attributes().dest_qp_num & wire::index_mask,
                            (work.rkey & ~remote_key_bit) >> key_index_shift});
      if (!carry_out_directly(work)) return;
    }
    const bool is_answered = work.fetches();
    pair_.count(port_traffic::way::sent, is_answered ? 0 : work.length);
    if (is_answered) pair_.count(port_traffic::way::received, work.length);
    oldest_ = begun_ = ++next_;
    count(work, IBV_WC_SUCCESS);
    if (work.signaled)
      pair_.complete_directly(*static_cast<completion_queue*>(pair_.send_cq),
                              completion_of(work, IBV_WC_SUCCESS));
  }
}

}  // namespace softverbs
