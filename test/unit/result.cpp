// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "outcomes.hpp"
#include <verbspp/base/result.hpp>

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/terminate.hpp>
#include <boost/outcome/try.hpp>
#include <boost/version.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

using verbspp::error;
using verbspp::error_kind;
using verbspp::result;
using verbspp::success;
using verbspp::test::boxed;
using verbspp::test::refused;

namespace {

template <class Value>
result<Value> fail() {
  return refused;
}
result<int> one() { return 1; }
result<void> done() { return success(); }
template <int First, int Second>
result<int> sum() {
  return First + Second;
}

}  // namespace

TEST_CASE("value() of a failure throws an exception that contains the error") {
  try {
    static_cast<void>(fail<int>().value());
    FAIL("nothing was thrown");
  } catch (const verbspp::exception& e) {
    CHECK(e.what() == refused.message());
    CHECK(e.error().message() == refused.message());
    CHECK(e.error() == error_kind::permission);
    CHECK(e.code() == std::errc::permission_denied);
  }
}

TEST_CASE("value() of a failure can be caught as std::system_error") {
  try {
    fail<void>().value();
    FAIL("nothing was thrown");
  } catch (const std::system_error& e) {
    CHECK(e.what() == refused.message());
    CHECK(e.code().value() == EACCES);
  }
}

TEST_CASE("value() of a success is the value") {
  CHECK(one().value() == 1);
  CHECK(*boxed(5).value() == 5);
  done().value();
}

TEST_CASE("error() of a success throws instead of returning an invented error") {
  CHECK_THROWS_AS(one().error(), verbspp::exception);
}

TEST_CASE("VERBSPP_TRY binds the value of a success") {
  const auto twice = []() -> result<int> {
    VERBSPP_TRY(value, one());
    value += 1;
    return value;
  };
  CHECK(twice().value() == 2);
}

TEST_CASE("VERBSPP_TRY returns the failure from the enclosing function") {
  bool went_on = false;
  const auto forward = [&]() -> result<std::string> {
    VERBSPP_TRY(value, fail<int>());
    went_on = true;
    return std::to_string(value);
  };
  CHECK(forward().error().message() == refused.message());
  CHECK_FALSE(went_on);
}

TEST_CASE("VERBSPP_TRY moves values that can only be moved") {
  const auto forward = []() -> result<std::unique_ptr<int>> {
    VERBSPP_TRY(box, boxed(7));
    return box;
  };
  CHECK(*forward().value() == 7);
}

TEST_CASE("VERBSPP_TRY takes expressions with commas") {
  const auto add = []() -> result<int> {
    VERBSPP_TRY(three, sum<1, 2>());
    VERBSPP_TRYV(sum<3, 4>());
    return three;
  };
  CHECK(add().value() == 3);
}

TEST_CASE("VERBSPP_TRYV checks a variable and leaves it unchanged") {
  struct move_only {
    explicit move_only(int n) : number(n) {}
    move_only(move_only&&) = default;
    move_only& operator=(move_only&&) = default;
    int number;
  };
  const auto look_at = [](auto& named) -> result<void> {
    VERBSPP_TRYV(named);
    return success();
  };
  result<move_only> owner = move_only(7);
  const result<move_only> constant = move_only(8);
  result<int> number = 9;
  CHECK(look_at(owner).has_value());
  CHECK(look_at(constant).has_value());
  CHECK(look_at(number).has_value());
  CHECK(owner.value().number == 7);
  owner = fail<move_only>().error();
  CHECK(look_at(owner).error() == error_kind::permission);
  CHECK(owner.error() == error_kind::permission);
  const result<move_only> failed = fail<move_only>().error();
  CHECK(look_at(failed).error() == error_kind::permission);
}

TEST_CASE("VERBSPP_TRYV continues after a success and returns a failure") {
  int steps = 0;
  const auto run = [&]() -> result<void> {
    VERBSPP_TRYV(done());
    ++steps;
    if (steps != 1)
      VERBSPP_TRYV(done());
    else
      VERBSPP_TRYV(fail<int>());
    ++steps;
    return success();
  };
  CHECK(run().error() == error_kind::permission);
  CHECK(steps == 1);
}

TEST_CASE("value() of a temporary result returns a value that outlives the result") {
  const auto counted = []() -> result<std::vector<int>> { return std::vector<int>{1, 2, 3}; };
  int sum = 0;
  for (const int each : counted().value()) sum += each;
  CHECK(sum == 6);

  const auto& kept = counted().value();
  const auto& assumed = counted().assume_value();
  const auto& why = fail<int>().error();
  CHECK(kept == assumed);
  CHECK(why.message() == refused.message());
}

TEST_CASE("value() of an lvalue returns a reference to its value") {
  result<std::vector<int>> kept(std::vector<int>{1});
  kept.value().push_back(2);
  kept.assume_value().push_back(3);
  CHECK(std::as_const(kept).value().size() == 3);
  CHECK(std::move(kept).value().size() == 3);
}

TEST_CASE("a result destroys its content exactly once") {
  const auto life = std::make_shared<int>(1);
  using holder = result<std::shared_ptr<int>>;
  {
    holder one = life;
    holder other = one;
    CHECK(life.use_count() == 3);
    holder moved = std::move(one);
    CHECK(life.use_count() == 3);
    other = refused;
    CHECK(life.use_count() == 2);
    other = moved;
    CHECK(life.use_count() == 3);
    other = std::move(moved);
    CHECK(life.use_count() == 2);
    auto& same = other;
    other = same;
    other = std::move(same);
    CHECK(other.value() == life);
    holder failed = refused;
    failed = other;
    CHECK(life.use_count() == 3);
    other = holder(refused);
    CHECK(other.error().message() == refused.message());
  }
  CHECK(life.use_count() == 1);
}

TEST_CASE("assignment destroys the previous content") {
  const auto life = std::make_shared<int>(1);
  result<std::shared_ptr<int>> old = life;
  result<std::shared_ptr<int>> fresh = std::make_shared<int>(2);
  old = std::move(fresh);
  CHECK(life.use_count() == 1);
}

namespace {

/// A type that can be neither copied nor moved.
struct pinned {
  explicit pinned(int value) noexcept : number(value) {}
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  int number;
};
result<pinned> pin(int value) {
  if (value < 0) return refused;
  return result<pinned>(std::in_place, value);
}

}  // namespace

TEST_CASE("a value that cannot be moved is created in its result and used there") {
  const auto kept = pin(5);
  CHECK(kept.value().number == 5);
  const auto use = [](int value) -> result<int> {
    VERBSPP_TRY(there, pin(value));
    static_assert(std::is_same_v<decltype(there), pinned&>);
    return there.number;
  };
  CHECK(use(6).value() == 6);
  CHECK(use(-1).error().message() == refused.message());
}

TEST_CASE("a result can be created from a result with a convertible value and error") {
  const result<long> wider = one();
  CHECK(wider.value() == 1);
  const result<long> failed = fail<int>();
  CHECK(failed.error().message() == refused.message());
  const result<std::string> text = result<const char*>("text");
  CHECK(text.value() == "text");
}

TEST_CASE("a result of a result distinguishes the failures of both") {
  using inner = result<int>;
  const result<inner> success_of_success = one();
  CHECK(success_of_success.value().value() == 1);
  const result<inner> success_of_failure = fail<int>();
  REQUIRE(success_of_failure.has_value());
  CHECK(success_of_failure.value().error() == error_kind::permission);
  const result<inner> failure = refused;
  CHECK_FALSE(failure.has_value());
}

TEST_CASE("success() and success(value) are successes") {
  CHECK(done().has_value());
  const auto count = []() -> result<int> { return success(3); };
  CHECK(count().value() == 3);
  const auto empty = []() -> result<std::string> { return success(); };
  CHECK(empty().value().empty());
}

namespace {

namespace outcome = BOOST_OUTCOME_V2_NAMESPACE;

/// The error type and the result type of another library.
struct foreign_error {
  foreign_error() = default;
  foreign_error(const error& cause) : text(cause.message()) {}
  std::string text;
};
using foreign_result = outcome::basic_result<int, foreign_error, outcome::policy::terminate>;

#if BOOST_VERSION >= 107600
#define OUTCOME_TRY(name, call) BOOST_OUTCOME_TRY(auto name, call)
#else
#define OUTCOME_TRY(name, call) BOOST_OUTCOME_TRY(name, call)
#endif

foreign_result tried_by_outcome(result<int> (*call)()) {
  BOOST_OUTCOME_TRYV(call());
  OUTCOME_TRY(value, call());
  return value;
}
result<int> tried_by_us(foreign_result (*call)()) {
  const auto convert = [&]() -> outcome::basic_result<int, error, outcome::policy::terminate> {
    const foreign_result given = call();
    if (given) return given.assume_value();
    return error(error_kind::not_found, "foreign", nullptr);
  };
  VERBSPP_TRY(value, convert());
  static_assert(std::is_same_v<decltype(value), int>);
  return value;
}

}  // namespace

TEST_CASE("the macros of Outcome accept a result in a function that returns an Outcome result") {
  CHECK(tried_by_outcome(one).assume_value() == 1);
  CHECK(tried_by_outcome(fail<int>).assume_error().text == refused.message());
}

TEST_CASE("VERBSPP_TRY accepts a result of Outcome whose error converts") {
  CHECK(tried_by_us([]() -> foreign_result { return 4; }).value() == 4);
  CHECK(tried_by_us([]() -> foreign_result { return refused; }).error() == error_kind::not_found);
}

TEST_CASE("VERBSPP_TRY can be used twice on a line, in a macro, and in its own argument") {
#define ADDED(sum, left, right)    \
  VERBSPP_TRY(sum##_left, left);   \
  VERBSPP_TRYV(done());            \
  VERBSPP_TRY(sum##_right, right); \
  VERBSPP_TRYV(done());            \
  const int sum = sum##_left + sum##_right
  const auto add = []() -> result<int> {
    // clang-format off
    VERBSPP_TRY(first, one()); VERBSPP_TRY(second, one()); VERBSPP_TRYV(done()); VERBSPP_TRYV(one());
    // clang-format on
    ADDED(both, one(), one());
    VERBSPP_TRY(inner, [&]() -> result<int> {
      VERBSPP_TRYV([&]() -> result<void> {
        VERBSPP_TRYV(done());
        VERBSPP_TRY(nested, one());
        return nested == 1 ? result<void>(success()) : result<void>(refused);
      }());
      VERBSPP_TRY(third, one());
      return third;
    }());
    return first + second + both + inner;
  };
#undef ADDED
  CHECK(add().value() == 5);
}
