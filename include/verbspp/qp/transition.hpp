// SPDX-License-Identifier: Apache-2.0
/// \file
/// The state machine of queue pairs as one table, which lists the transitions that have attributes,
/// and the attributes that each of them requires and allows. Masks, checks and documentation are
/// derived from the table.
#pragma once

#include <verbspp/qp/state.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <optional>

namespace verbspp {

/// The attributes that a transition accepts in addition to IBV_QP_STATE, as masks of
/// `ibv_qp_attr_mask` values.
struct transition_attributes {
  int required = 0;
  int optional = 0;

  /// True if `mask` has all required attributes, and only attributes that are accepted.
  [[nodiscard]] constexpr bool accept(int mask) const noexcept {
    return (mask & required) == required && (mask & ~(required | optional | IBV_QP_STATE)) == 0;
  }
  friend constexpr bool operator==(const transition_attributes&,
                                   const transition_attributes&) noexcept = default;
};

/// A transition, with the attributes for each type of queue pair.
struct transition_row {
  queue_pair_state from;
  queue_pair_state to;
  transition_attributes rc{};
  transition_attributes uc{};
  transition_attributes ud{};
  transition_attributes raw_packet{};
  transition_attributes xrc_send{};
  transition_attributes xrc_receive{};
};

namespace detail {

// Groups of attributes that belong together.
inline constexpr int where = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
inline constexpr int peer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
inline constexpr int as_target = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int as_initiator =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
inline constexpr int second_path = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS;
inline constexpr int running = IBV_QP_CUR_STATE | second_path | IBV_QP_PATH_MIG_STATE;
inline constexpr int running_target = running | IBV_QP_MIN_RNR_TIMER;
inline constexpr int drained = second_path | IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;

}  // namespace detail

/// All transitions except those to RESET and ERR, which take no attributes: every state can change
/// to RESET, and every state except RESET to ERR. The table agrees with the kernel
/// (`ib_modify_qp_is_ok`); see "Modify Queue Pair" in the InfiniBand Architecture Specification.
inline constexpr std::array transition_table = [] {
  using enum queue_pair_state;
  using namespace detail;
  return std::to_array<transition_row>({
      {.from = reset,
       .to = init,
       .rc = {.required = where | IBV_QP_ACCESS_FLAGS},
       .uc = {.required = where | IBV_QP_ACCESS_FLAGS},
       .ud = {.required = where | IBV_QP_QKEY},
       .raw_packet = {.required = IBV_QP_PORT},
       .xrc_send = {.required = where | IBV_QP_ACCESS_FLAGS},
       .xrc_receive = {.required = where | IBV_QP_ACCESS_FLAGS}},
      {.from = init,
       .to = init,
       .rc = {.optional = where | IBV_QP_ACCESS_FLAGS},
       .uc = {.optional = where | IBV_QP_ACCESS_FLAGS},
       .ud = {.optional = where | IBV_QP_QKEY},
       .xrc_send = {.optional = where | IBV_QP_ACCESS_FLAGS},
       .xrc_receive = {.optional = where | IBV_QP_ACCESS_FLAGS}},
      {.from = init,
       .to = ready_to_receive,
       .rc = {.required = peer | as_target, .optional = second_path | IBV_QP_PKEY_INDEX},
       .uc = {.required = peer, .optional = second_path | IBV_QP_PKEY_INDEX},
       .ud = {.optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
       .xrc_send = {.required = peer, .optional = second_path | IBV_QP_PKEY_INDEX},
       .xrc_receive = {.required = peer | as_target, .optional = second_path | IBV_QP_PKEY_INDEX}},
      {.from = ready_to_receive,
       .to = ready_to_send,
       .rc = {.required = IBV_QP_SQ_PSN | as_initiator, .optional = running_target},
       .uc = {.required = IBV_QP_SQ_PSN, .optional = running},
       .ud = {.required = IBV_QP_SQ_PSN, .optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
       .raw_packet = {.optional = IBV_QP_RATE_LIMIT},
       .xrc_send = {.required = IBV_QP_SQ_PSN | as_initiator, .optional = running},
       .xrc_receive = {.required = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, .optional = running_target}},
      {.from = ready_to_send,
       .to = ready_to_send,
       .rc = {.optional = running_target},
       .uc = {.optional = running},
       .ud = {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
       .raw_packet = {.optional = IBV_QP_RATE_LIMIT},
       .xrc_send = {.optional = running},
       .xrc_receive = {.optional = running_target}},
      {.from = ready_to_send,
       .to = send_queue_drained,
       .rc = {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY},
       .uc = {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY},
       .ud = {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY},
       .xrc_send = {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY},
       .xrc_receive = {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
      {.from = send_queue_drained,
       .to = ready_to_send,
       .rc = {.optional = running_target},
       .uc = {.optional = running},
       .ud = {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
       .xrc_send = {.optional = running},
       .xrc_receive = {.optional = running_target}},
      {.from = send_queue_drained,
       .to = send_queue_drained,
       .rc = {.optional = drained | IBV_QP_PORT | as_target | as_initiator},
       .uc = {.optional = drained},
       .ud = {.optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
       .xrc_send = {.optional = drained | IBV_QP_PORT | as_initiator},
       .xrc_receive = {.optional = drained | IBV_QP_PORT | IBV_QP_TIMEOUT | as_target}},
      {.from = send_queue_error,
       .to = ready_to_send,
       .uc = {.optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
       .ud = {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
  });
}();

/// The attributes of a transition for one type of queue pair; empty if there is no such transition,
/// or the table has no column for the type.
[[nodiscard]] constexpr std::optional<transition_attributes> transition(ibv_qp_type type,
                                                                        ibv_qp_state from,
                                                                        ibv_qp_state to) noexcept {
  const auto column = [&]() -> transition_attributes transition_row::* {
    switch (type) {
      case IBV_QPT_RC:
        return &transition_row::rc;
      case IBV_QPT_UC:
        return &transition_row::uc;
      case IBV_QPT_UD:
        return &transition_row::ud;
      case IBV_QPT_RAW_PACKET:
        return &transition_row::raw_packet;
      case IBV_QPT_XRC_SEND:
        return &transition_row::xrc_send;
      case IBV_QPT_XRC_RECV:
        return &transition_row::xrc_receive;
      default:
        return nullptr;
    }
  }();
  if (column == nullptr || from > IBV_QPS_ERR || to > IBV_QPS_ERR) return std::nullopt;
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
    return transition_attributes{};
  for (const transition_row& row : transition_table)
    if (static_cast<ibv_qp_state>(row.from) == from && static_cast<ibv_qp_state>(row.to) == to)
      return row.*column;
  return std::nullopt;
}

/// True if the kernel accepts `ibv_modify_qp` from state `from` to state `to` with these
/// attributes. Only the presence of attributes is checked, not their values.
///
/// The kernel accepts IBV_QP_CUR_STATE only if `from` is RTR, RTS, SQD or SQE. The table's entries
/// for other states therefore do not contain it.
[[nodiscard]] constexpr bool modify_is_valid(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                             int attr_mask) noexcept {
  const auto attributes = transition(type, from, to);
  return attributes && attributes->accept(attr_mask);
}

}  // namespace verbspp
