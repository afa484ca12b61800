// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/extensible.hpp"
#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "machine/open_device.hpp"
#include "queue_pair/request_batch.hpp"
#include "queue_pair/requester.hpp"
#include "queue_pair/responder.hpp"
#include "wire/address.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace softverbs {

/// A queue pair: its state and attributes, and the two halves that do its work.
class queue_pair final : public extensible_qp, public served, private work_queues {
 public:
  queue_pair(open_device& owner, protection_domain& domain, const ibv_qp_init_attr& attributes);
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
  softverbs::engine& engine() const noexcept { return owner_.engine(); }

  void on_packet(const packet& incoming) override;
  void on_deadline(nanoseconds time) override;
  bool serve() override;

  /// Gets a number, by which packets find it; 0 or an errno.
  int enter_machine();
  /// Says what the peer must still hear, and is out of the machine.
  void leave_machine();
  /// What is left of it in its completion queues goes.
  void forget_completions() noexcept;

  // What the two halves call.
  softverbs::wire& wire() const noexcept { return owner_.machine().wire; }
  region_table& regions() const noexcept { return owner_.machine().regions; }
  faults::place place() const noexcept { return {owner_.device().number, qp_num}; }
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
  /// A header with all that is the same for each packet of this queue pair.
  packet_header header(packet_kind kind, std::uint32_t psn) const noexcept;
  /// Blocked: `serve` is called when it may work again.
  sent send(const packet_header& header, const iovec* payload, std::size_t pieces, turn when);

  requester requests;
  responder responses;
  /// For those that are built by function calls.
  std::unique_ptr<request_batch> batch;
  /// Of a thread that builds; null if there is none.
  session* building() const noexcept { return batch ? &batch->building : nullptr; }

  unsigned async_events_reported = 0;

 private:
  void release(const completion& entry) noexcept override;
  void completion_lost() override;
  int check_values(const ibv_qp_attr& asked, int mask) const noexcept;
  void apply(const ibv_qp_attr& asked, int mask);
  void enter(ibv_qp_state next);
  bool is_from_peer(const packet_header& header) const noexcept;
  bool is_for_us(const packet_header& header) const noexcept;

  open_device& owner_;
  ibv_qp_init_attr initial_;
  ibv_qp_attr attributes_{};
  route route_;  ///< to the peer
  bool established_ = false;
};

}  // namespace softverbs
