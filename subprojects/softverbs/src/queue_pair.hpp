// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "address.hpp"
#include "completion_queue.hpp"
#include "engine.hpp"
#include "extended_posting.hpp"
#include "extensible.hpp"
#include "packet.hpp"
#include "requester.hpp"
#include "responder.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace softverbs {

class device_context;

/// A queue pair: its state and attributes, and the two halves that do its work.
class queue_pair final : public extensible_qp {
 public:
  queue_pair(device_context& owner, protection_domain& domain, const ibv_qp_init_attr& attributes);
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;
  ~queue_pair();

  /// As ibv_modify_qp: 0 or an errno, and then nothing has changed.
  int modify(const ibv_qp_attr& asked, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) const noexcept;

  bool is_reliable() const noexcept { return qp_type == IBV_QPT_RC; }
  bool is_connected() const noexcept { return qp_type != IBV_QPT_UD; }
  ibv_qp_state now_in() const noexcept { return attributes_.qp_state; }
  /// Whether sends may be posted.
  bool takes_sends() const noexcept {
    return now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT && now_in() != IBV_QPS_RTR;
  }
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }
  const ibv_qp_init_attr& initial() const noexcept { return initial_; }
  device_context& owner() const noexcept { return owner_; }
  engine& machine() const noexcept { return engine_; }

  // What the engine calls, under its lock.
  void on_packet(const packet& incoming);
  void on_deadline(nanoseconds time);
  /// True if there is more to do, for which nothing has to happen first.
  bool serve();

  // What the two halves call.
  /// Everything outstanding will be flushed.
  void enter_error();
  /// After a request failed: the send queue will be flushed. What comes in is still
  /// received where the service is not reliable.
  void enter_send_error();
  void raise(ibv_event_type event);
  /// The first packet came in while the program is still on its way to RTS.
  void communication_established();
  /// Completes a work request. If the completion is lost, so is the queue pair.
  void complete(completion_queue& queue, completion entry);
  void completion_lost();
  /// A header with all that is the same for each packet of this queue pair.
  packet_header header(packet_kind kind, std::uint32_t psn) const noexcept;
  /// Blocked: `serve` is called when it may work again.
  sent send(const packet_header& header, const iovec* payload, std::size_t pieces, turn when);

  /// A completion has been polled.
  void release(const completion& entry) noexcept;

  /// Says what the peer must still hear, before the queue pair goes.
  void say_goodbye();

  requester requests;
  responder responses;
  /// For those that are built by function calls.
  std::unique_ptr<request_batch> batch;

  // The engine's own marks.
  bool scheduled = false;
  bool timed = false;
  nanoseconds deadline = 0;
  unsigned async_events_reported = 0;

 private:
  int check_values(const ibv_qp_attr& asked, int mask) const noexcept;
  void apply(const ibv_qp_attr& asked, int mask);
  void enter(ibv_qp_state next);
  bool is_from_peer(const packet_header& header) const noexcept;
  bool is_for_us(const packet_header& header) const noexcept;

  device_context& owner_;
  engine& engine_;
  ibv_qp_init_attr initial_;
  ibv_qp_attr attributes_{};
  route route_;  ///< to the peer
  bool established_ = false;
};

}  // namespace softverbs
