// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/qp/state.hpp>

#include <infiniband/verbs.h>

#include <optional>

namespace verbspp {

/// The attributes that a transition of a queue pair takes, as masks of `ibv_qp_attr_mask`, besides
/// IBV_QP_STATE itself.
struct transition_attributes {
  int required = 0;
  int optional = 0;

  /// True if `mask` has everything that is required and nothing that is not taken.
  [[nodiscard]] constexpr bool accept(int mask) const noexcept {
    return (mask & required) == required && (mask & ~(required | optional | IBV_QP_STATE)) == 0;
  }
};

/// The attributes of a transition of a reliable connection; empty where there is no such transition.
///
/// The bring-up takes its masks from here. InfiniBand Architecture Specification, table 94, as the
/// kernel checks it.
[[nodiscard]] constexpr std::optional<transition_attributes> rc_transition(
    queue_pair_state from, queue_pair_state to) noexcept {
  using enum queue_pair_state;
  constexpr int path_changes = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS;
  constexpr int while_sending = IBV_QP_CUR_STATE | path_changes | IBV_QP_MIN_RNR_TIMER |
                                IBV_QP_PATH_MIG_STATE;

  if (to == reset) return transition_attributes{};
  if (to == error) {
    if (from == reset) return std::nullopt;
    return transition_attributes{};
  }
  if (from == reset && to == init)
    return transition_attributes{
        .required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
  if (from == init && to == init)
    return transition_attributes{
        .optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
  if (from == init && to == ready_to_receive)
    return transition_attributes{
        .required = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        .optional = path_changes | IBV_QP_PKEY_INDEX};
  if (from == ready_to_receive && to == ready_to_send)
    return transition_attributes{.required = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                                 .optional = while_sending};
  if ((from == ready_to_send || from == send_queue_drained) && to == ready_to_send)
    return transition_attributes{.optional = while_sending};
  // A reliable connection never gets into SQE; the kernel lets it out all the same.
  if (from == send_queue_error && to == ready_to_send) return transition_attributes{};
  if (from == ready_to_send && to == send_queue_drained)
    return transition_attributes{.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY};
  if (from == send_queue_drained && to == send_queue_drained)
    return transition_attributes{
        .optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | path_changes |
                    IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE};
  return std::nullopt;
}

}  // namespace verbspp
