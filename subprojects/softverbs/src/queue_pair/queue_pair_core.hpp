// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/extensible.hpp"
#include "completion/completion_queue.hpp"
#include "faults/faults.hpp"
#include "machine/open_device.hpp"
#include "wire/address.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// What both halves of a queue pair work with: its state and attributes, and the ways to the wire,
/// to memory and to its completion queues.
class queue_pair_core : public extensible_qp, public served, protected work_queues {
 public:
  bool is_reliable() const noexcept { return qp_type == IBV_QPT_RC; }
  bool is_connected() const noexcept { return qp_type != IBV_QPT_UD; }
  ibv_qp_state now_in() const noexcept { return attributes_.qp_state; }
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }
  const ibv_qp_init_attr& initial() const noexcept { return initial_; }

  softverbs::engine& engine() const noexcept { return owner_.engine(); }
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
  /// Whether this thread is reading one of its completion queues.
  bool is_being_read_here() const noexcept;
  /// What is left of it in its completion queues goes.
  void forget_completions() noexcept;
  /// A header with all that is the same for each packet of this queue pair.
  packet_header header(packet_kind kind, std::uint32_t psn) const noexcept;
  /// Blocked: `serve` is called when it may work again.
  sent send(const packet_header& header, const iovec* payload, std::size_t pieces, turn when);

 protected:
  queue_pair_core(open_device& owner, protection_domain& domain,
                  const ibv_qp_init_attr& attributes);
  queue_pair_core(const queue_pair_core&) = delete;
  queue_pair_core& operator=(const queue_pair_core&) = delete;
  ~queue_pair_core();

  void completion_lost() override;

  open_device& owner_;
  ibv_qp_init_attr initial_;
  ibv_qp_attr attributes_{};
  route route_;  ///< to the peer
  bool established_ = false;
};

}  // namespace softverbs
