// SPDX-License-Identifier: Apache-2.0
// VERBSPP_CO_TRY and VERBSPP_CO_TRYV in a minimal coroutine, which never suspends.

#include "../catch.hpp"
#include "../eager.hpp"
#include "outcomes.hpp"
#include <verbspp/work/transport_error.hpp>

#include <coroutine>
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

TEST_CASE("VERBSPP_CO_TRYV destroys the value of an awaited result once") {
  // Counts the values that are alive. If a value were destroyed twice, the count would be wrong.
  struct counted {
    explicit counted(int& count) : alive(&count) { ++*alive; }
    counted(counted&& other) noexcept : alive(std::exchange(other.alive, nullptr)) {}
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() {
      if (alive != nullptr) --*alive;
    }
    int* alive;
  };
  struct awaited {
    static bool await_ready() noexcept { return true; }
    static void await_suspend(std::coroutine_handle<> /*waiting*/) noexcept {}
    [[nodiscard]] result<counted> await_resume() const {
      if (!succeeds) return refused;
      return result<counted>(counted(*count));
    }
    int* count;
    bool succeeds;
  };
  int count = 0;
  const auto run = [&count](bool succeeds) -> eager<result<int>> {
    VERBSPP_CO_TRYV(co_await awaited{.count = &count, .succeeds = true});
    auto named = co_await awaited{.count = &count, .succeeds = succeeds};
    VERBSPP_CO_TRYV(named);  // leaves the value where it is
    co_return count;
  };
  auto succeeded = run(true);
  CHECK(succeeded.get().value() == 1);
  auto failed = run(false);
  CHECK(failed.get().error().message() == refused.message());
  CHECK(count == 0);
}
