// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "memory/memory_window.hpp"
#include "memory/queue_array.hpp"
#include "queue_pair/operation.hpp"
#include "wire/address.hpp"
#include "wire/packet.hpp"
#include "wire/wire.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace softverbs {

class queue_pair_core;

/// The half of a queue pair that executes its send queue. It sends packets, and completes requests
/// in order. With a reliable service, it waits for acknowledgements, and retransmits lost packets.
/// With other services, a request is done once its packets are sent or dropped.
///
/// The queue is a ring. Its positions are counters that don't wrap around at the capacity, in this
/// order: freed (polled) <= oldest (not completed) <= next (to be sent) <= head (posted). `begun_`
/// is the first request that has not begun: it has no packet sequence numbers yet, and was not
/// carried out without packets. After a loss, `next` moves back; `begun_` doesn't.
class requester {
 public:
  requester(queue_pair_core& pair, const ibv_qp_init_attr& granted);

  /// Posts a request. Returns 0 or an errno value, as ibv_post_send does. The caller checks the
  /// state.
  int post(const ibv_send_wr& request, posting way = posting::always);
  /// The number of requests posted so far. `take_back` withdraws the requests that were posted
  /// after this number was read. Those requests must not have begun.
  std::uint32_t posted() const noexcept { return head_; }
  void take_back(std::uint32_t posted_before) noexcept { head_ = posted_before; }
  /// Carries out as many posted requests as possible, in order, without packets. To do so, this
  /// thread also does the work of the peer's device. The other requests are left to `transmit`.
  /// Does not require the engine's lock.
  void carry_out_directly();
  /// True if a posted request is not finished.
  bool is_busy() const noexcept { return oldest_ != head_; }
  /// Sends packets until none can be sent now, or until this call has sent its share. Returns true
  /// in the second case, if requests are left.
  bool transmit();
  void on_acknowledge(std::uint32_t psn);
  void on_refusal(const packet_header& header);
  void on_read_response(const packet& incoming);
  void on_deadline(nanoseconds time);
  /// Completes all remaining requests as flushed.
  void flush();
  /// Returns to the initial state, in which no request was ever posted.
  void reset() noexcept;

  void set_psn(std::uint32_t psn) noexcept { psn_ = acknowledged_ = psn; }
  std::uint32_t psn() const noexcept { return psn_; }
  /// True if all requests that have begun are finished.
  bool drained() const noexcept { return oldest_ == begun_; }

 private:
  /// A posted request. The members that a direct request uses come first, in 64 bytes, and then
  /// those that only packets and rarer operations need.
  struct request {
    std::uint64_t wr_id;
    std::uint64_t remote_address;
    std::uint64_t length;
    std::uint32_t rkey;
    std::uint32_t immediate;
    std::uint32_t shared_queue;  ///< the number of the peer's shared receive queue, for XRC
    ibv_wr_opcode opcode : 8;
    ibv_wc_status failure : 8;
    std::uint16_t entries;
    bool signaled, solicited, fenced, inlined;
    bool judged;         ///< true once `fault` has been determined
    bool not_pulled;     ///< true if the peer could not pull the data
    ibv_sge only_entry;  ///< the entry, if requests can't have more than one

    std::uint32_t first_psn;
    std::uint32_t packets;
    std::uint32_t received;  ///< the number of bytes fetched so far
    faults::verdict fault;
    union {
      atomic_operands operands;
      window_binding binding;
    };

    const operation& what() const noexcept { return operations_known[opcode]; }
    bool fetches() const noexcept { return what().fetches(); }
    std::uint32_t last_psn() const noexcept { return (first_psn + packets - 1) & psn_mask; }
  };

  /// The number of places for requests: a power of two, at least the capacity; 0 if the capacity is
  /// 0.
  std::size_t places() const noexcept { return capacity_ == 0 ? 0 : std::size_t{mask_} + 1; }
  request& at(std::uint32_t number) noexcept { return ring_[number & mask_]; }
  ibv_sge* entries_of(std::uint32_t number) noexcept {
    if (max_entries_ == 1) return &at(number).only_entry;
    return entries_.get() + std::size_t{number & mask_} * max_entries_;
  }
  /// Inline data is stored in the space of the request's entries if that is large enough for
  /// `max_inline_` bytes, and otherwise in `inline_`.
  std::byte* inline_of(std::uint32_t number) noexcept {
    if (has_inline_among_entries()) return reinterpret_cast<std::byte*>(entries_of(number));
    return inline_.get() + std::size_t{number & mask_} * max_inline_;
  }
  bool has_inline_among_entries() const noexcept {
    return max_inline_ <= max_entries_ * sizeof(ibv_sge);
  }

  /// The destination of a datagram. It is a copy, because the address handle and its domain may be
  /// destroyed before the datagram is sent.
  struct datagram {
    destination to;
    std::uint32_t domain;
    std::uint32_t qpn;
    std::uint32_t qkey;
  };
  datagram& datagram_of(std::uint32_t number) noexcept { return datagrams_[number & mask_]; }

  struct local_memory;
  bool carry_out_directly(request& work) noexcept;
  /// True if the request has to wait until all earlier requests are finished, because it may then
  /// be carried out without packets.
  bool awaits_turn(const request& work) const noexcept;
  bool look_up(const request& work, local_memory& memory) noexcept;
  /// Carries out a request on memory of the peer that this process can access. Returns false on
  /// failure.
  bool access_directly(request& work, const local_memory& local, std::byte* memory) noexcept;
  bool copy_directly(const request& work, const remote_process& other, const local_memory& local,
                     std::uint64_t remote) noexcept;
  completion completion_of(const request& work, ibv_wc_status status) noexcept;
  bool outstanding(std::uint32_t psn) const noexcept;
  ibv_wc_status inspect(request& work);
  /// Determines the effect of faults on the request.
  void judge(request& work);
  /// Sets `pieces` to the local memory for `length` bytes of a request, starting at `offset`.
  /// Returns the number of pieces, or a negative number if the memory must not be accessed.
  int gather(std::uint32_t number, std::uint64_t offset, std::uint32_t length,
             iovec* pieces) noexcept;
  enum class outcome : std::uint8_t { sent, waiting, failed };
  outcome transmit_packet(request& work, turn when);
  packet_header header_of(const request& work) noexcept;
  /// True if the peer may read the data of this write from the memory of this process, so that it
  /// is copied once, not twice.
  bool may_be_pulled(const request& work) const noexcept;
  sent send_datagram(const packet_header& header, const iovec* payload, std::size_t pieces,
                     turn when);
  sent send_frame(const packet_header& described, const iovec* payload, std::size_t pieces,
                  turn when);
  sent send_to_group(const packet_header& header, const iovec* payload, std::size_t pieces,
                     turn when);
  outcome wait_for_answer(const request& work, sent result, std::uint32_t packets);
  outcome be_done_with(const request& work, sent result);
  void advance(const request& work, std::uint32_t packets = 1) noexcept;
  void begin(request& work) noexcept;
  /// Carries out a local request: a bind or an invalidation. All earlier requests must be finished,
  /// so the local request is never repeated.
  outcome carry_out(request& work);
  void stop_at(request& work, ibv_wc_status failure);
  void complete_oldest();
  void fail_oldest(ibv_wc_status status);
  void count(const request& work, ibv_wc_status status) const noexcept;
  void complete(const request& work, ibv_wc_status status);
  /// Returns the request to which an outstanding sequence number belongs.
  request& request_with(std::uint32_t psn) noexcept;
  void go_back_to(std::uint32_t psn) noexcept;
  void made_progress();
  void restart_timer(nanoseconds time);

  // The members that direct requests access most come first, in little more than a cache line.
  queue_pair_core& pair_;
  std::uint32_t capacity_;
  std::uint32_t mask_;  ///< maps the number of a request to its place
  std::uint32_t max_entries_;
  std::uint32_t max_inline_;
  queue_array<request, queue_content::sends> ring_;
  queue_array<ibv_sge, queue_content::sends> entries_;
  std::atomic<std::uint32_t> freed_{0};
  std::uint32_t oldest_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t psn_ = 0;  ///< the first sequence number of the request `begun_`
  bool signals_all_;
  bool used_wire_ = false;  ///< true if packets were used since the last reset
  bool stopped_ = false;    ///< true if `next_` has failed, but earlier requests must finish first
  bool resting_ = false;    ///< true while it waits for a receiver that was not ready

  queue_array<std::byte, queue_content::sends> inline_;
  queue_array<datagram, queue_content::sends> datagrams_;
  /// The processes to which the multicast or frame `next_` must still be sent. Has no value before
  /// the first attempt to send it.
  std::optional<std::vector<std::uint32_t>> audience_;
  std::uint32_t next_packet_ = 0;  ///< the next packet of `next_`
  std::uint32_t fetches_ = 0;  ///< counts unfinished requests before `next_` that need a response
  std::uint32_t acknowledged_ = 0;  ///< the sequence number of the first unacknowledged packet
  bool gave_up_ = false;            ///< true if it no longer waits for a peer that doesn't read
  std::uint8_t retries_ = 0;
  std::uint8_t rnr_retries_ = 0;
  std::uint8_t refused_pulls_ = 0;  ///< counts the writes that the peer could not pull
  nanoseconds quiet_since_ = 0;
};

}  // namespace softverbs
