// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/state_table.hpp"

#include <array>

namespace softverbs {
namespace {

struct attributes {
  int required = 0;
  int optional = 0;

  bool fit(int mask) const noexcept {
    mask &= ~IBV_QP_STATE;
    return (required & ~mask) == 0 && (mask & ~(required | optional)) == 0;
  }
};

struct transition {
  ibv_qp_state from;
  ibv_qp_state to;
  attributes taken;
};

constexpr int initial_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int path_mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int with_path_mask = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int connected_mask =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int drained_mask = IBV_QP_AV | with_path_mask | IBV_QP_PATH_MIG_STATE;

constexpr int repeating_mask =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int reliable_mask = connected_mask | IBV_QP_MIN_RNR_TIMER;

constexpr int unconnected_mask = IBV_QP_CUR_STATE | IBV_QP_QKEY;

// All transitions except those to RESET and ERR, which have no attributes.

constexpr std::array of_rc{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {initial_mask, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {0, initial_mask}},
    transition{IBV_QPS_INIT,
               IBV_QPS_RTR,
               {path_mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, with_path_mask}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN | repeating_mask, reliable_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, reliable_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    transition{IBV_QPS_SQD,
               IBV_QPS_SQD,
               {0, drained_mask | repeating_mask | IBV_QP_PORT | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, reliable_mask}},
};

constexpr std::array of_uc{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {initial_mask, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {0, initial_mask}},
    transition{IBV_QPS_INIT, IBV_QPS_RTR, {path_mask, with_path_mask}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN, connected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, connected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    transition{IBV_QPS_SQD, IBV_QPS_SQD, {0, drained_mask}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, connected_mask}},
    transition{IBV_QPS_SQE, IBV_QPS_RTS, {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS}},
};

// An XRC queue pair is only one half of a connection. As in the kernel, it has no attributes for
// the other half, except packet sequence numbers, access rights and a timeout.

constexpr std::array of_xrc_send{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {initial_mask, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {0, initial_mask}},
    transition{IBV_QPS_INIT, IBV_QPS_RTR, {path_mask, with_path_mask}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN | repeating_mask, connected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, connected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    transition{IBV_QPS_SQD, IBV_QPS_SQD, {0, drained_mask | repeating_mask | IBV_QP_PORT}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, connected_mask}},
};

constexpr std::array of_xrc_receive{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {initial_mask, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {0, initial_mask}},
    transition{IBV_QPS_INIT,
               IBV_QPS_RTR,
               {path_mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, with_path_mask}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, reliable_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, reliable_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    transition{IBV_QPS_SQD,
               IBV_QPS_SQD,
               {0, drained_mask | IBV_QP_TIMEOUT | IBV_QP_PORT | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, reliable_mask}},
};

constexpr std::array of_ud{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY}},
    transition{IBV_QPS_INIT, IBV_QPS_RTR, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN, unconnected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, unconnected_mask}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    transition{IBV_QPS_SQD, IBV_QPS_SQD, {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {0, unconnected_mask}},
    transition{IBV_QPS_SQE, IBV_QPS_RTS, {0, unconnected_mask}},
};

// A raw packet queue pair has no address, because the program builds its frames, and flow rules and
// multicast groups select the frames that it receives.
constexpr std::array of_raw_packet{
    transition{IBV_QPS_RESET, IBV_QPS_INIT, {IBV_QP_PORT, 0}},
    transition{IBV_QPS_INIT, IBV_QPS_INIT, {}},
    transition{IBV_QPS_INIT, IBV_QPS_RTR, {}},
    transition{IBV_QPS_RTR, IBV_QPS_RTS, {0, IBV_QP_RATE_LIMIT}},
    transition{IBV_QPS_RTS, IBV_QPS_RTS, {0, IBV_QP_RATE_LIMIT}},
    transition{IBV_QPS_RTS, IBV_QPS_SQD, {}},
    transition{IBV_QPS_SQD, IBV_QPS_SQD, {}},
    transition{IBV_QPS_SQD, IBV_QPS_RTS, {}},
    transition{IBV_QPS_SQE, IBV_QPS_RTS, {}},
};

template <typename Rules>
bool is_valid(const Rules& rules, ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
  for (const transition& rule : rules)
    if (rule.from == from && rule.to == to) return rule.taken.fit(mask);
  return false;
}

}  // namespace

bool transition_is_valid(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
    return attributes{}.fit(mask);
  switch (type) {
    case IBV_QPT_RC:
      return is_valid(of_rc, from, to, mask);
    case IBV_QPT_UC:
      return is_valid(of_uc, from, to, mask);
    case IBV_QPT_XRC_SEND:
      return is_valid(of_xrc_send, from, to, mask);
    case IBV_QPT_XRC_RECV:
      return is_valid(of_xrc_receive, from, to, mask);
    case IBV_QPT_UD:
      return is_valid(of_ud, from, to, mask);
    case IBV_QPT_RAW_PACKET:
      return is_valid(of_raw_packet, from, to, mask);
    default:
      return false;
  }
}

}  // namespace softverbs
