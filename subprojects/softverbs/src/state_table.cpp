// SPDX-License-Identifier: Apache-2.0
#include "state_table.hpp"

#include <array>

namespace softverbs {
namespace {

struct transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int initial = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int sending =
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int in_operation = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                             IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER;
constexpr int while_drained = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                              IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;

/// For reliable connections; but for those to RESET and ERR, which need nothing.
constexpr std::array reliable_connection{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, initial, 0},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, 0, initial},
    transition{IBV_QPS_INIT, IBV_QPS_RTR, path,
               IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, sending, in_operation},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, in_operation},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    transition{IBV_QPS_SQD, IBV_QPS_SQD, 0, while_drained},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, in_operation},
};

bool fits(const transition& rule, int mask) noexcept {
  mask &= ~IBV_QP_STATE;
  return (rule.required & ~mask) == 0 && (mask & ~(rule.required | rule.optional)) == 0;
}

}  // namespace

bool transition_is_valid(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
  if (type != IBV_QPT_RC) return false;
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
    return fits({from, to, 0, 0}, mask);
  for (const transition& rule : reliable_connection)
    if (rule.from == from && rule.to == to) return fits(rule, mask);
  return false;
}

}  // namespace softverbs
