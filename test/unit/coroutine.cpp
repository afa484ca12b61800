// SPDX-License-Identifier: Apache-2.0
// VERBSPP_CO_TRY and VERBSPP_CO_TRYV in a minimal coroutine, which runs at once and to its end.

#include "../catch.hpp"
#include "outcomes.hpp"
#include <verbspp/work/transport_error.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

using verbspp::error;
using verbspp::result;
using verbspp::success;
using verbspp::transport_result;
using verbspp::test::boxed;
using verbspp::test::refused;

namespace {

template <class Outcome>
struct eager {
  struct promise_type {
    eager get_return_object() {
      return eager{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(Outcome outcome) { returned.emplace(std::move(outcome)); }
    void unhandled_exception() { std::terminate(); }

    std::optional<Outcome> returned{};
  };

  explicit eager(std::coroutine_handle<promise_type> handle) : coroutine(handle) {}
  eager(eager&& other) noexcept : coroutine(std::exchange(other.coroutine, nullptr)) {}
  eager& operator=(eager&&) = delete;
  ~eager() {
    if (coroutine) coroutine.destroy();
  }
  Outcome& get() { return *coroutine.promise().returned; }

  std::coroutine_handle<promise_type> coroutine;
};

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
