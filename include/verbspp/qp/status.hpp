// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/state.hpp>

#include <infiniband/verbs.h>

#include <iosfwd>

namespace verbspp {

/// The result of querying a queue pair.
///
/// The attributes of a connection (peer, PSNs, MTU) are meaningful only once the transitions to RTR
/// and RTS have set them.
class queue_pair_status {
 public:
  queue_pair_status(const ibv_qp_attr& attributes, const ibv_qp_init_attr& initial) noexcept
      : attributes_(attributes), initial_(initial) {}

  [[nodiscard]] queue_pair_state state() const noexcept {
    return static_cast<queue_pair_state>(detail::number_of(attributes_.qp_state));
  }
  /// True in SQD while requests that the device has started have not finished.
  [[nodiscard]] bool is_draining() const noexcept {
    return state() == queue_pair_state::send_queue_drained && attributes_.sq_draining != 0;
  }
  [[nodiscard]] queue_pair_number destination() const noexcept {
    return queue_pair_number::assume(attributes_.dest_qp_num & queue_pair_number::maximum);
  }
  /// The PSN of the next packet, or, on some devices, the PSN that was set.
  [[nodiscard]] packet_sequence_number send_psn() const noexcept {
    return packet_sequence_number::assume(attributes_.sq_psn & packet_sequence_number::maximum);
  }
  [[nodiscard]] packet_sequence_number receive_psn() const noexcept {
    return packet_sequence_number::assume(attributes_.rq_psn & packet_sequence_number::maximum);
  }
  [[nodiscard]] path_mtu mtu() const noexcept { return detail::mtu_from(attributes_.path_mtu); }
  [[nodiscard]] access_flags access() const noexcept {
    return access_flags::from_bits(attributes_.qp_access_flags);
  }
  [[nodiscard]] queue_key qkey() const noexcept { return queue_key::assume(attributes_.qkey); }
  [[nodiscard]] queue_pair_capacities capacities() const noexcept {
    return {.max_send_work_requests = attributes_.cap.max_send_wr,
            .max_receive_work_requests = attributes_.cap.max_recv_wr,
            .max_send_elements = attributes_.cap.max_send_sge,
            .max_receive_elements = attributes_.cap.max_recv_sge,
            .max_inline_data = attributes_.cap.max_inline_data};
  }
  /// All attributes that `ibv_query_qp` reports.
  [[nodiscard]] const ibv_qp_attr& attributes() const& noexcept VERBSPP_LIFETIMEBOUND {
    return attributes_;
  }
  [[nodiscard]] ibv_qp_attr attributes() const&& noexcept { return attributes_; }
  [[nodiscard]] const ibv_qp_init_attr& initial() const& noexcept VERBSPP_LIFETIMEBOUND {
    return initial_;
  }
  [[nodiscard]] ibv_qp_init_attr initial() const&& noexcept { return initial_; }

 private:
  ibv_qp_attr attributes_;
  ibv_qp_init_attr initial_;
};

std::ostream& operator<<(std::ostream& out, const queue_pair_status& status);

}  // namespace verbspp
