// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/newer_verbs.hpp"
#include "faults/faults.hpp"
#include "queue_pair/receive_memory.hpp"
#include "queue_pair/receive_queue.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace softverbs {

class queue_pair_core;
class shared_receive_queue;
struct packet;
struct xrc_domain;

/// The half of a queue pair that carries out its peer's requests, and fills receives.
class responder {
 public:
  /// If the queue pair receives for XRC, `receives_for` is the domain that contains the shared
  /// receive queues to which requests may refer. Otherwise, it is null.
  responder(queue_pair_core& pair, const ibv_qp_init_attr& granted, const xrc_domain* receives_for);

  /// Posts a receive. Returns 0 or an errno value, as ibv_post_recv does. The caller checks the
  /// state.
  int post(const ibv_recv_wr& request) noexcept { return own_.post(request); }
  void on_request(const packet& incoming);
  /// Receives a datagram or a frame.
  void on_datagram(const packet& incoming);
  /// Sends pending responses until one has to wait, or until this call has sent its share. Returns
  /// true in the second case.
  bool answer();
  void flush();
  void reset() noexcept;
  /// Called when an XRC shared receive queue is destroyed. If a message is being received into the
  /// queue, the rest of the message will be refused.
  void forget(const shared_receive_queue& queue) noexcept;
  /// Called when the queue pair is about to be destroyed. Passes a pending refusal to the wire, or
  /// an acknowledgement that covers no unanswered request.
  void leave_answer();

  void expect_psn(std::uint32_t psn) noexcept;
  std::uint32_t expected_psn() const noexcept { return expected_; }

 private:
  /// A request with a response of its own. The response has the data of a read or the previous
  /// value of an atomic, or confirms that an atomic write or a flush is done. Recent requests are
  /// kept after the response, because the peer may repeat them.
  struct fetch {
    packet_kind kind;
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t domain;  ///< the number of the domain whose memory it may access
    std::uint64_t length;
    std::uint32_t answer;  ///< the size of the response in bytes
    unsigned right;
    std::uint32_t psn;
    atomic_operands operands;
    std::optional<std::uint64_t> value;  ///< the result, once it is known; a read has none
    std::uint32_t answered;

    /// False for a read of zero bytes, which needs no key.
    bool touches_memory() const noexcept {
      return length != 0 || kind != packet_kind::read_request;
    }
    bool flushes_region() const noexcept {
      return kind == packet_kind::flush && operands.compare_or_add >> 8 == newer::flush_region;
    }
  };
  /// The message that is being received.
  struct message {
    packet_kind kind{};
    bool open = false;
    std::uint32_t arrived = 0;
    std::uint32_t length = 0;  ///< writes only
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
    std::uint32_t shared_queue = 0;
  };

  void on_duplicate(const packet_header& header);
  void on_send(const packet& incoming);
  void on_write(const packet& incoming);
  void on_fetch(const packet& incoming);
  /// Sets the right that the request requires and, for a flush, its length. Returns false if the
  /// operands are invalid.
  bool understands(fetch& wanted) const noexcept;
  bool is_expected(const packet_header& header);
  /// XRC only: switches to the shared receive queue that a request names. Returns false if the
  /// domain has no queue with that number, or if a message for another queue is incomplete.
  bool turn_to(std::uint32_t shared_queue) noexcept;
  /// The number of the protection domain whose memory requests may currently access.
  std::uint32_t domain() const noexcept;
  bool continues(const packet_header& header) noexcept;
  /// True if a receive is available. If there is a shared queue, the receive is taken from it.
  bool has_receive();
  const receive_queue::receive& current() const noexcept {
    return shared_ == nullptr ? own_.front() : *taken_;
  }
  receive_memory current_memory() const noexcept;
  void took(const packet_header& header);
  /// Completes the receive of a message. Returns false if a fault makes the receive fail.
  bool receive_message(ibv_wc_opcode opcode, std::uint32_t bytes, const packet_header& header);
  void complete_receive(ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes,
                        const packet_header* header, const faults::verdict& fault = {});
  /// Refuses the message. Drops it instead if the service is not reliable.
  void refuse(refusal reason);
  void refuse_for_good(refusal reason, ibv_event_type event);
  /// Completes a receive with an error, and enters the error state. If the service is reliable,
  /// refuses the message, too.
  void fail_receive(ibv_wc_status status, refusal reason, ibv_event_type event,
                    const faults::verdict& fault = {});
  packet_header refusal_header() const noexcept;
  packet_header acknowledgement() const noexcept;
  bool answer_fetch(fetch& wanted);
  /// Returns the memory that the request accesses. The span's address is null if the access is not
  /// permitted, or no longer permitted.
  std::span<std::byte> memory_of(const fetch& wanted) const noexcept;
  void* source_of(fetch& wanted) noexcept;

  queue_pair_core& pair_;
  receive_queue own_;
  /// The shared queue that is used instead of `own_`, or null if there is none. For XRC, this is
  /// the queue that the last request named; null before the first request, and after that queue was
  /// destroyed.
  shared_receive_queue* shared_;
  const xrc_domain* receives_for_;
  /// The receive that was taken from the shared queue. If its message is dropped, the next message
  /// uses it.
  std::optional<receive_queue::receive> taken_;
  std::vector<ibv_sge> taken_entries_;
  bool told_last_ = false;

  std::uint32_t expected_ = 0;  ///< the next packet sequence number
  message message_;
  bool acknowledge_due_ = false;
  unsigned unacknowledged_ = 0;
  /// True after a refusal, until the expected packet arrives. Until then, later packets are dropped
  /// silently.
  bool refused_ = false;
  refusal refusal_due_ = refusal::none;
  std::uint32_t refused_psn_ = 0;

  static constexpr std::uint32_t most_fetches = 32;
  /// The requests that need a response (see `fetch`). Null before the first one, because many queue
  /// pairs never get any.
  std::unique_ptr<std::array<fetch, most_fetches>> fetches_;
  fetch& fetch_at(std::uint32_t number) noexcept { return (*fetches_)[number % most_fetches]; }
  std::uint32_t first_fetch_ = 0;  ///< the first request that is not answered yet
  std::uint32_t end_fetch_ = 0;
};

}  // namespace softverbs
