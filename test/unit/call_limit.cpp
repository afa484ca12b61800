// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/wait/call_limit.hpp>

#include <chrono>
#include <limits>
#include <stop_token>
#include <type_traits>

using namespace verbspp;
using namespace std::chrono_literals;

namespace {

bool has_passed(call_limit limit) { return limit.has_passed(); }
wait_limit begun(call_limit limit) { return limit.begin(30s); }

}  // namespace

static_assert(std::is_convertible_v<std::chrono::seconds, call_limit>);
static_assert(std::is_convertible_v<wait_limit, call_limit>);
static_assert(std::is_convertible_v<wait_limit::time_point, call_limit>);
static_assert(std::is_convertible_v<std::stop_token, call_limit>);
static_assert(!std::is_convertible_v<int, call_limit>);
static_assert(!std::is_default_constructible_v<call_limit>);

TEST_CASE("the limit of a call starts when the call begins to wait") {
  const auto before = wait_limit::time_point::clock::now();
  const wait_limit limit = begun(5s);
  CHECK(limit.deadline() >= before + 5s);
  CHECK(limit.deadline() <= wait_limit::time_point::clock::now() + 5s);
  // A deadline or a stop token is used as it is.
  CHECK(begun(before).deadline() == before);
  CHECK(begun(wait_limit(before)).deadline() == before);
  CHECK(begun(wait_limit::forever()).is_forever());
  CHECK(begun((std::chrono::hours::max)()).is_forever());
  CHECK(begun(std::chrono::hours(24) * 36600).is_forever());
  CHECK_FALSE(begun(std::chrono::hours(24) * 36500).is_forever());
  std::stop_source source;
  CHECK_FALSE(begun(source.get_token()).has_passed());
  source.request_stop();
  CHECK(begun(source.get_token()).stop_requested());
}

TEST_CASE("a call without a limit has the limit of its channel") {
  CHECK_FALSE(has_passed(call_limit::of_channel()));
  CHECK_FALSE(has_passed(detail::default_limit));
  CHECK(call_limit::of_channel().is_of_channel());
  CHECK_FALSE(call_limit(0s).is_of_channel());
  CHECK(begun(call_limit::of_channel()).deadline() > wait_limit::time_point::clock::now() + 20s);
  CHECK(begun(detail::default_limit).deadline() < wait_limit::time_point::clock::now() + 40s);
  const wait_limit own = wait_limit::time_point();
  CHECK(begun(own).deadline() == own.deadline());
  const wait_limit copy = detail::default_limit;
  CHECK(begun(copy).is_forever());
}

TEST_CASE("the limit of a call has already expired if it is zero or negative") {
  CHECK_FALSE(has_passed(1ns));
  CHECK_FALSE(has_passed(std::chrono::duration<double, std::pico>(1)));
  CHECK_FALSE(has_passed((std::chrono::hours::max)()));
  CHECK_FALSE(has_passed(std::chrono::duration<double>(0.5)));
  CHECK(has_passed(0s));
  CHECK(has_passed(-1s));
  CHECK(has_passed(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())));
  CHECK(has_passed(wait_limit::time_point::clock::now()));
  CHECK(has_passed(wait_limit(0s)));
  std::stop_source source;
  CHECK_FALSE(has_passed(source.get_token()));
  source.request_stop();
  CHECK(has_passed(source.get_token()));
}
