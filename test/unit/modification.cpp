// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/qp/modification.hpp>
#include <verbspp/qp/transition.hpp>

#include <infiniband/verbs.h>

#include <array>

using namespace verbspp;

namespace {

constexpr std::array types{IBV_QPT_RC,         IBV_QPT_UC,       IBV_QPT_UD,
                           IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};

void check_refused(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask,
                   const char* operation, const char* words) {
  const auto checked = check_modification(type, from, to, mask);
  REQUIRE(checked.has_error());
  CHECK(checked.error() == error_kind::invalid_input);
  CHECK(std::string(checked.error().operation()) == operation);
  CHECK_THAT(checked.error().message(), Catch::EndsWith(words));
}

}  // namespace

TEST_CASE("a modification is refused if and only if the table refuses it") {
  int refused = 0;
  int accepted = 0;
  for (const ibv_qp_type type : types)
    for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; ++from)
      for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; ++to) {
        const auto before = static_cast<ibv_qp_state>(from);
        const auto after = static_cast<ibv_qp_state>(to);
        const auto taken = transition(type, before, after).value_or(transition_attributes{});
        // Starts from the required attributes, and then from the required and the optional ones.
        // Tries each of these two sets as it is, and with every single attribute added or removed.
        for (const int base : {taken.required, taken.required | taken.optional})
          for (int bit = -1; bit < 31; ++bit) {
            const int mask = bit < 0 ? base : base ^ (1 << bit);
            const bool valid = modify_is_valid(type, before, after, mask);
            if (check_modification(type, before, after, mask).has_value() != valid)
              FAIL("type " << type << ", " << from << " -> " << to << ", mask " << mask);
            ++(valid ? accepted : refused);
          }
      }
  CHECK(accepted > 500);
  CHECK(refused > 1000);
}

TEST_CASE("the error about a refused modification states the reason") {
  constexpr int peer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  check_refused(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, peer & ~IBV_QP_PATH_MTU,
                "modify INIT -> RTR",
                "this transition requires an attribute that is missing: path MTU");
  check_refused(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, peer | IBV_QP_MAX_DEST_RD_ATOMIC,
                "modify INIT -> RTR",
                "this transition does not accept an attribute in the mask: max reads as target");
  check_refused(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE, "modify RTR -> RTS",
                "an attribute that is missing: ACK timeout");
  check_refused(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_CAP, "modify RTS -> RTS",
                "does not accept an attribute in the mask: unknown attribute");
  check_refused(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QP_STATE, "modify RESET -> RTS",
                "see the state diagram in docs/queue_pair_states.md");
}

TEST_CASE("an unknown state is refused") {
  const auto checked =
      check_modification(IBV_QPT_RC, IBV_QPS_RESET, static_cast<ibv_qp_state>(7), 0);
  REQUIRE(checked.has_error());
  CHECK(checked.error() == error_kind::invalid_input);
  CHECK_THAT(checked.error().message(), Catch::Contains("7"));
}

TEST_CASE("modifying a null pointer is refused") {
  const auto modified = modify_native(nullptr, ibv_qp_attr{}, 0);
  REQUIRE(modified.has_error());
  CHECK(modified.error() == error_kind::invalid_input);
}
