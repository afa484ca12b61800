// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/qp/transition.hpp>

#include <infiniband/verbs.h>

#include <array>

using verbspp::rc_transition;
using enum verbspp::queue_pair_state;

namespace {

constexpr std::array states{
    reset, init, ready_to_receive, ready_to_send, error, send_queue_drained, send_queue_error};

struct legal_transition {
  verbspp::queue_pair_state from;
  verbspp::queue_pair_state to;
  int required;
  int optional;
};

// The bring-up of a reliable connection as the kernel checks it. Any state may go to RESET, and any
// but RESET to ERR, with nothing else changed; those are not listed.
constexpr std::array<legal_transition, 9> transitions{{
    {reset, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {init, init, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {init, ready_to_receive,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {ready_to_receive, ready_to_send,
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {ready_to_send, ready_to_send, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {send_queue_drained, ready_to_send, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {ready_to_send, send_queue_drained, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {send_queue_drained, send_queue_drained, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {send_queue_error, ready_to_send, 0, 0},
}};

const legal_transition* find(verbspp::queue_pair_state from, verbspp::queue_pair_state to) {
  static constexpr legal_transition nothing_else{};
  if (to == reset || (to == error && from != reset)) return &nothing_else;
  for (const auto& each : transitions)
    if (each.from == from && each.to == to) return &each;
  return nullptr;
}

}  // namespace

TEST_CASE("a reliable connection makes the transitions of the verbs and no others") {
  for (const auto from : states)
    for (const auto to : states) {
      CAPTURE(to_string(from), to_string(to));
      const auto* const expected = find(from, to);
      const auto transition = rc_transition(from, to);
      REQUIRE(transition.has_value() == (expected != nullptr));
      if (expected == nullptr) continue;
      CHECK(transition->required == expected->required);
      CHECK(transition->optional == expected->optional);
    }
}

TEST_CASE("a transition accepts what it requires with any of what it allows") {
  for (const auto& each : transitions) {
    CAPTURE(to_string(each.from), to_string(each.to));
    const auto transition = rc_transition(each.from, each.to);
    REQUIRE(transition.has_value());
    CHECK(transition->accept(each.required));
    CHECK(transition->accept(each.required | IBV_QP_STATE));
    CHECK(transition->accept(each.required | each.optional | IBV_QP_STATE));
    for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
      CAPTURE(bit);
      if ((each.required & bit) != 0)
        CHECK_FALSE(transition->accept((each.required | each.optional) & ~bit));
      else
        CHECK(transition->accept(each.required | bit) ==
              ((each.optional & bit) != 0 || bit == IBV_QP_STATE));
    }
  }
}
