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

/// The half of a queue pair that executes its send queue: sends packets, and completes
/// in order. Where the service is reliable, it waits for acknowledgements, and repeats
/// what got lost; else all is done once it is sent.
///
/// The queue is a ring with counters that only grow, in this order:
/// freed (polled) <= oldest (not completed) <= next (to be sent) <= head (posted);
/// `begun_` is the first that has no packet sequence number yet. After a loss,
/// `next` goes back, `begun_` doesn't.
class requester {
 public:
  requester(queue_pair_core& pair, const ibv_qp_init_attr& granted);

  /// As ibv_post_send, the state being right.
  int post(const ibv_send_wr& request, posting way = posting::always);
  /// How many were posted; what was posted since then and not begun can be taken back.
  std::uint32_t posted() const noexcept { return head_; }
  void take_back(std::uint32_t posted_before) noexcept { head_ = posted_before; }
  /// Carries out by itself what it can of what was posted: all that the peer does otherwise,
  /// without its help. The rest is for `transmit`. Without the engine's lock.
  void carry_out_directly();
  /// Something that was posted isn't finished.
  bool is_busy() const noexcept { return oldest_ != head_; }
  /// Puts as much on the wire as may be. True if there is more that needn't wait.
  bool transmit();
  void on_acknowledge(std::uint32_t psn);
  void on_refusal(const packet_header& header);
  void on_read_response(const packet& incoming);
  void on_deadline(nanoseconds time);
  /// Completes all that is left as flushed.
  void flush();
  /// Back to where nothing was ever posted.
  void reset() noexcept;

  void set_psn(std::uint32_t psn) noexcept { psn_ = acknowledged_ = psn; }
  std::uint32_t psn() const noexcept { return psn_; }
  /// Nothing that has begun is unfinished.
  bool drained() const noexcept { return oldest_ == begun_; }

 private:
  /// First what each one has, in a cache line, then what most don't touch.
  struct request {
    std::uint64_t wr_id;
    std::uint64_t remote_address;
    std::uint64_t length;
    std::uint32_t rkey;
    std::uint32_t immediate;
    std::uint32_t shared_queue;  ///< of XRC, that of the peer which it is for
    ibv_wr_opcode opcode : 8;
    ibv_wc_status failure : 8;
    std::uint16_t entries;
    bool signaled, solicited, fenced, inlined;
    bool judged;         ///< has a verdict
    ibv_sge only_entry;  ///< where none has more

    std::uint32_t first_psn;
    std::uint32_t packets;
    std::uint32_t received;  ///< bytes of what is fetched
    faults::verdict fault;
    union {
      atomic_operands operands;
      window_binding binding;
    };

    const operation& what() const noexcept { return operations_known[opcode]; }
    bool fetches() const noexcept { return what().fetches(); }
    std::uint32_t last_psn() const noexcept { return (first_psn + packets - 1) & psn_mask; }
  };

  request& at(std::uint32_t number) noexcept { return ring_[number & (capacity_ - 1)]; }
  ibv_sge* entries_of(std::uint32_t number) noexcept {
    if (max_entries_ == 1) return &at(number).only_entry;
    return entries_.get() + std::size_t{number & (capacity_ - 1)} * max_entries_;
  }
  /// What is inline has no entries, and is in their place if there is room for the most of it.
  std::byte* inline_of(std::uint32_t number) noexcept {
    if (has_inline_among_entries()) return reinterpret_cast<std::byte*>(entries_of(number));
    return inline_.get() + std::size_t{number & (capacity_ - 1)} * max_inline_;
  }
  bool has_inline_among_entries() const noexcept {
    return max_inline_ <= max_entries_ * sizeof(ibv_sge);
  }

  /// Where a datagram goes, kept for itself: address handles may be destroyed, and their domain.
  struct datagram {
    destination to;
    std::uint32_t domain;
    std::uint32_t qpn;
    std::uint32_t qkey;
  };
  datagram& datagram_of(std::uint32_t number) noexcept {
    return datagrams_[number & (capacity_ - 1)];
  }

  struct local_memory;
  bool carry_out_directly(request& work) noexcept;
  /// It is going to be, once nothing is on the wire before it.
  bool awaits_turn(const request& work) const noexcept;
  bool look_up(const request& work, local_memory& memory) noexcept;
  bool is_same_process(const remote_process& other) noexcept;
  /// The same where the payload can be accessed from here.
  bool access_directly(request& work, const local_memory& local, std::byte* memory) noexcept;
  bool copy_directly(const request& work, const remote_process& other, const local_memory& local,
                     std::uint64_t remote) noexcept;
  completion completion_of(const request& work, ibv_wc_status status) noexcept;
  bool outstanding(std::uint32_t psn) const noexcept;
  ibv_wc_status inspect(request& work);
  /// Asks what fault is to happen to it.
  void judge(request& work);
  /// The pieces of memory with `length` bytes from `offset`; negative if they may
  /// not be used.
  int gather(std::uint32_t number, std::uint64_t offset, std::uint32_t length,
             iovec* pieces) noexcept;
  enum class outcome : std::uint8_t { sent, waiting, failed };
  outcome transmit_packet(request& work, turn when);
  packet_header header_of(const request& work) noexcept;
  sent send_datagram(const packet_header& header, const iovec* payload, std::size_t pieces,
                     turn when);
  sent send_frame(const packet_header& described, const iovec* payload, std::size_t pieces,
                  turn when);
  sent send_to_group(const packet_header& header, const iovec* payload, std::size_t pieces,
                     turn when);
  outcome wait_for_answer(const request& work, sent result);
  outcome be_done_with(const request& work, sent result);
  void advance(const request& work) noexcept;
  void begin(request& work) noexcept;
  /// What is local, when all before it has finished: so it is never repeated.
  outcome carry_out(request& work);
  void stop_at(request& work, ibv_wc_status failure);
  void complete_oldest();
  void fail_oldest(ibv_wc_status status);
  void count(const request& work, ibv_wc_status status) const noexcept;
  void complete(const request& work, ibv_wc_status status);
  void go_back_to(std::uint32_t psn) noexcept;
  void made_progress();
  void restart_timer(nanoseconds time);

  // First all that a direct request looks at, which is little more than a cache line.
  queue_pair_core& pair_;
  std::uint32_t capacity_;  ///< a power of two, or 0
  std::uint32_t max_entries_;
  queue_array<request, queue_content::sends> ring_;
  queue_array<ibv_sge, queue_content::sends> entries_;
  std::uint32_t max_inline_;
  std::atomic<std::uint32_t> freed_{0};
  std::uint32_t oldest_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t begun_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t psn_ = 0;  ///< of the first packet never sent
  bool signals_all_;
  bool used_wire_ = false;  ///< since the last reset
  bool stopped_ = false;    ///< `next_` can't be executed
  bool resting_ = false;    ///< until a receiver may be ready

  queue_array<std::byte, queue_content::sends> inline_;
  queue_array<datagram, queue_content::sends> datagrams_;
  /// The processes that `next_`, to a group, still has to be sent to, if it was to some.
  std::optional<std::vector<std::uint32_t>> audience_;
  std::uint32_t next_packet_ = 0;   ///< of `next_`
  std::uint32_t fetches_ = 0;       ///< from `oldest_` up to `next_`
  std::uint32_t acknowledged_ = 0;  ///< of the first packet not acknowledged
  bool gave_up_ = false;            ///< waiting for a receiver that doesn't read
  std::uint8_t retries_ = 0;
  std::uint8_t rnr_retries_ = 0;
  nanoseconds quiet_since_ = 0;
  nanoseconds seen_peer_ = 0;  ///< in its process
};

}  // namespace softverbs
