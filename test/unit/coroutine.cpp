// SPDX-License-Identifier: Apache-2.0
// VERBSPP_CO_TRY and VERBSPP_CO_TRYV in a minimal coroutine, which runs at once and to its end.

#include "../catch.hpp"
#include "../eager.hpp"
#include "outcomes.hpp"
#include <verbspp/work/transport_error.hpp>

#include <optional>
#include <utility>

using verbspp::error;
using verbspp::result;
using verbspp::success;
using verbspp::transport_result;
using verbspp::test::boxed;
using verbspp::test::eager;
using verbspp::test::refused;

namespace {

result<void> step(bool succeeds) {
  if (!succeeds) return refused;
  return success();
}

eager<transport_result<int>> add(bool succeeds, int& steps) {
  VERBSPP_CO_TRY(left, boxed(1));
  VERBSPP_CO_TRY(right, boxed(2));
  ++steps;
  if (steps == 1)
    VERBSPP_CO_TRYV(step(succeeds));
  else
    VERBSPP_CO_TRYV(step(!succeeds));
  ++steps;
  co_return *left + *right;
}

}  // namespace

TEST_CASE("VERBSPP_CO_TRY binds the value of a success") {
  int steps = 0;
  auto sum = add(true, steps);
  CHECK(sum.get().value() == 3);
  CHECK(steps == 2);
}

TEST_CASE("VERBSPP_CO_TRYV ends the coroutine with the failure") {
  int steps = 0;
  auto sum = add(false, steps);
  REQUIRE(sum.get().has_error());
  CHECK(sum.get().error().message() == refused.message());
  CHECK(steps == 1);
}

TEST_CASE("VERBSPP_CO_TRY ends the coroutine with the failure") {
  const auto forward = [](result<int> given) -> eager<result<int>> {
    VERBSPP_CO_TRY(value, given);
    co_return value + 1;
  };
  auto failed = forward(refused);
  CHECK(failed.get().error().message() == refused.message());
  auto succeeded = forward(1);
  CHECK(succeeded.get().value() == 2);
}
