// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "queue_pair/queue_pair_core.hpp"
#include "queue_pair/request_batch.hpp"
#include "queue_pair/requester.hpp"
#include "queue_pair/responder.hpp"

#include <infiniband/verbs.h>

#include <memory>

namespace softverbs {

/// A queue pair: its state and attributes, and the two halves that do its work.
class queue_pair final : public queue_pair_core {
 public:
  queue_pair(open_device& owner, protection_domain& domain, const ibv_qp_init_attr& attributes);

  /// As ibv_modify_qp: 0 or an errno, and then nothing has changed.
  int modify(const ibv_qp_attr& asked, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) const noexcept;

  /// Whether sends may be posted.
  bool takes_sends() const noexcept {
    return now_in() != IBV_QPS_RESET && now_in() != IBV_QPS_INIT && now_in() != IBV_QPS_RTR;
  }

  void on_packet(const packet& incoming) override;
  void on_deadline(nanoseconds time) override;
  bool serve() override;

  /// Gets a number, by which packets find it; 0 or an errno.
  int enter_machine();
  /// Says what the peer must still hear, and is out of the machine.
  void leave_machine();

  requester requests;
  responder responses;
  /// For those that are built by function calls.
  std::unique_ptr<request_batch> batch;
  /// Of a thread that builds; null if there is none.
  session* building() const noexcept { return batch ? &batch->building : nullptr; }

  unsigned async_events_reported = 0;

 private:
  void release(const completion& entry) noexcept override;
  int check_values(const ibv_qp_attr& asked, int mask) const noexcept;
  void apply(const ibv_qp_attr& asked, int mask);
  void enter(ibv_qp_state next);
  bool is_from_peer(const packet_header& header) const noexcept;
  bool is_for_us(const packet_header& header) const noexcept;
};

}  // namespace softverbs
