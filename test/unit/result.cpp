// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/base/result.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

using verbspp::error;
using verbspp::error_kind;
using verbspp::result;
using verbspp::success;

namespace {

const error refused = error::from_errno(EACCES, "ibv_open_device", "ask for access");

template <class Value>
result<Value> fail() {
  return refused;
}
result<int> one() { return 1; }
result<void> done() { return success(); }
result<std::unique_ptr<int>> boxed(int value) { return std::make_unique<int>(value); }
template <int First, int Second>
result<int> sum() {
  return First + Second;
}

}  // namespace

TEST_CASE("value() of a failure throws an exception with the error in it") {
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

TEST_CASE("error() of a success throws instead of making an error up") {
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

TEST_CASE("VERBSPP_TRYV goes on after a success and returns a failure") {
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
