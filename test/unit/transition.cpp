// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/qp/transition.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstddef>
#include <utility>

using verbspp::modify_is_valid;
using verbspp::transition;

namespace {

constexpr std::array states{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                            IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
constexpr std::array types{IBV_QPT_RC,         IBV_QPT_UC,       IBV_QPT_UD,
                           IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};

struct expectation {
  int required = 0;
  int optional = 0;
};

struct legal_transition {
  ibv_qp_state from;
  ibv_qp_state to;
  expectation of[types.size()];  // in the order of `types`
};

constexpr int pkey = IBV_QP_PKEY_INDEX, port = IBV_QP_PORT, access = IBV_QP_ACCESS_FLAGS,
              qkey = IBV_QP_QKEY, av = IBV_QP_AV, mtu = IBV_QP_PATH_MTU, dest = IBV_QP_DEST_QPN,
              rq_psn = IBV_QP_RQ_PSN, sq_psn = IBV_QP_SQ_PSN, dest_rd = IBV_QP_MAX_DEST_RD_ATOMIC,
              rnr_timer = IBV_QP_MIN_RNR_TIMER, alt = IBV_QP_ALT_PATH, timeout = IBV_QP_TIMEOUT,
              retry = IBV_QP_RETRY_CNT, rnr = IBV_QP_RNR_RETRY, rd = IBV_QP_MAX_QP_RD_ATOMIC,
              cur = IBV_QP_CUR_STATE, mig = IBV_QP_PATH_MIG_STATE,
              notify = IBV_QP_EN_SQD_ASYNC_NOTIFY, rate = IBV_QP_RATE_LIMIT;

// The kernel's table, for each transition and each type of queue pair. The transitions from any
// state to RESET, and from any state but RESET to ERR, are omitted here, because they need no
// attribute other than the new state.
constexpr std::array<legal_transition, 9> transitions{{
    {IBV_QPS_RESET,
     IBV_QPS_INIT,
     {{pkey | port | access, 0},
      {pkey | port | access, 0},
      {pkey | port | qkey, 0},
      {port, 0},
      {pkey | port | access, 0},
      {pkey | port | access, 0}}},
    {IBV_QPS_INIT,
     IBV_QPS_INIT,
     {{0, pkey | port | access},
      {0, pkey | port | access},
      {0, pkey | port | qkey},
      {0, 0},
      {0, pkey | port | access},
      {0, pkey | port | access}}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {{av | mtu | dest | rq_psn | dest_rd | rnr_timer, alt | access | pkey},
      {av | mtu | dest | rq_psn, alt | access | pkey},
      {0, pkey | qkey},
      {0, 0},
      {av | mtu | dest | rq_psn, alt | access | pkey},
      {av | mtu | dest | rq_psn | dest_rd | rnr_timer, alt | access | pkey}}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {{timeout | retry | rnr | sq_psn | rd, cur | alt | access | rnr_timer | mig},
      {sq_psn, cur | alt | access | mig},
      {sq_psn, cur | qkey},
      {0, rate},
      {timeout | retry | rnr | sq_psn | rd, cur | alt | access | mig},
      {timeout | sq_psn, cur | alt | access | rnr_timer | mig}}},
    {IBV_QPS_RTS,
     IBV_QPS_RTS,
     {{0, cur | access | alt | mig | rnr_timer},
      {0, cur | access | alt | mig},
      {0, cur | qkey},
      {0, rate},
      {0, cur | access | alt | mig},
      {0, cur | access | alt | mig | rnr_timer}}},
    {IBV_QPS_RTS,
     IBV_QPS_SQD,
     {{0, notify}, {0, notify}, {0, notify}, {0, 0}, {0, notify}, {0, notify}}},
    {IBV_QPS_SQD,
     IBV_QPS_RTS,
     {{0, cur | alt | access | rnr_timer | mig},
      {0, cur | alt | access | mig},
      {0, cur | qkey},
      {0, 0},
      {0, cur | alt | access | mig},
      {0, cur | alt | access | rnr_timer | mig}}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {{0, port | av | timeout | retry | rnr | rd | dest_rd | alt | access | pkey | rnr_timer | mig},
      {0, av | alt | access | pkey | mig},
      {0, pkey | qkey},
      {0, 0},
      {0, port | av | timeout | retry | rnr | rd | alt | access | pkey | mig},
      {0, port | av | timeout | dest_rd | alt | access | pkey | rnr_timer | mig}}},
    {IBV_QPS_SQE,
     IBV_QPS_RTS,
     {{0, 0}, {0, cur | access}, {0, cur | qkey}, {0, 0}, {0, 0}, {0, 0}}},
}};

constexpr expectation nothing_else{};

constexpr const expectation* find(std::size_t type, ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) return &nothing_else;
  for (const auto& each : transitions)
    if (each.from == from && each.to == to) return &each.of[type];
  return nullptr;
}

/// Performs the kernel's checks, in the same order as the kernel.
constexpr bool kernel_accepts(const expectation* expected, ibv_qp_state from, int mask) {
  if ((mask & cur) != 0 && from != IBV_QPS_RTR && from != IBV_QPS_RTS && from != IBV_QPS_SQD &&
      from != IBV_QPS_SQE)
    return false;
  if (expected == nullptr) return false;
  if ((mask & expected->required) != expected->required) return false;
  return (mask & ~(expected->required | expected->optional | IBV_QP_STATE)) == 0;
}

/// All attributes are bits below this one, except for the rate limit, which was added later.
constexpr int masks = 1 << 21;
static_assert(rate >= masks);

struct verdicts {
  unsigned differing = 0;
  unsigned accepted = 0;
};

/// Compares the results of the library with the kernel's rule, for every mask with and without the
/// rate limit. There is a separate function for each type and pair of states, so that the compiler
/// can move the table lookup out of the loop.
template <std::size_t Type, ibv_qp_state From, ibv_qp_state To>
[[gnu::flatten]] void compare_all_masks(verdicts& sum) {
  constexpr const expectation* expected = find(Type, From, To);
  verdicts own;
  for (int mask = 0; mask < masks; ++mask)
    for (const int each : {mask, mask | rate}) {
      const bool ours = modify_is_valid(types[Type], From, To, each);
      own.differing += static_cast<unsigned>(ours != kernel_accepts(expected, From, each));
      own.accepted += static_cast<unsigned>(ours);
    }
  sum.differing += own.differing;
  sum.accepted += own.accepted;
}

template <std::size_t Type, std::size_t... Pair>
void compare_all_pairs(verdicts& sum, std::index_sequence<Pair...>) {
  (compare_all_masks<Type, states[Pair / states.size()], states[Pair % states.size()]>(sum), ...);
}

template <std::size_t... Type>
verdicts compare_all_types(std::index_sequence<Type...>) {
  verdicts sum;
  (compare_all_pairs<Type>(sum, std::make_index_sequence<states.size() * states.size()>()), ...);
  return sum;
}

/// Returns the number of masks that the kernel accepts. IBV_QP_STATE and each optional attribute
/// may be present or absent.
unsigned expected_to_be_accepted() {
  unsigned sum = 0;
  for (std::size_t type = 0; type < types.size(); ++type)
    for (const ibv_qp_state from : states)
      for (const ibv_qp_state to : states)
        if (const auto* const expected = find(type, from, to))
          sum += 2U << std::popcount(static_cast<unsigned>(expected->optional));
  return sum;
}

}  // namespace

TEST_CASE("every type of queue pair accepts exactly the transitions of the kernel's table") {
  for (std::size_t type = 0; type < types.size(); ++type)
    for (const ibv_qp_state from : states)
      for (const ibv_qp_state to : states) {
        CAPTURE(types[type], from, to);
        const auto* const expected = find(type, from, to);
        const auto taken = transition(types[type], from, to);
        REQUIRE(taken.has_value() == (expected != nullptr));
        if (expected == nullptr) continue;
        CHECK(taken->required == expected->required);
        CHECK(taken->optional == expected->optional);
      }
}

TEST_CASE("for all masks, all pairs of states and all types the result equals the kernel's") {
  const verdicts counted = compare_all_types(std::make_index_sequence<types.size()>());
  CHECK(counted.differing == 0);
  CHECK(counted.accepted == expected_to_be_accepted());
}

TEST_CASE("the current state can be specified only in RTR, RTS, SQD and SQE") {
  for (const ibv_qp_type type : types)
    for (const ibv_qp_state from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR})
      for (const ibv_qp_state to : states) {
        const auto taken = transition(type, from, to);
        if (taken) CHECK(((taken->required | taken->optional) & IBV_QP_CUR_STATE) == 0);
      }
}

TEST_CASE("a type or state that the library does not know has no transitions") {
  CHECK_FALSE(modify_is_valid(static_cast<ibv_qp_type>(0xff), IBV_QPS_RESET, IBV_QPS_RESET, 0));
  CHECK_FALSE(modify_is_valid(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, 0));
  CHECK_FALSE(modify_is_valid(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, 0));
}

static_assert(modify_is_valid(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                  IBV_QP_ACCESS_FLAGS));
static_assert(!modify_is_valid(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QP_STATE));
