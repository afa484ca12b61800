// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/base/wait_limit.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <type_traits>

using namespace verbspp;
using std::chrono::steady_clock;

static_assert(std::is_convertible_v<std::chrono::milliseconds, wait_limit>);
static_assert(std::is_convertible_v<steady_clock::time_point, wait_limit>);
// Of what unit, of what clock?
static_assert(!std::is_convertible_v<int, wait_limit>);
static_assert(!std::is_convertible_v<std::chrono::system_clock::time_point, wait_limit>);

TEST_CASE("a limit that is a duration ends that long after it was made, and not before") {
  const auto before = steady_clock::now();
  const wait_limit limit = std::chrono::milliseconds(100);
  const auto after = steady_clock::now();
  CHECK(limit.deadline() >= before + std::chrono::milliseconds(100));
  CHECK(limit.deadline() <= after + std::chrono::milliseconds(100));
  CHECK_FALSE(limit.is_forever());
  const wait_limit fine = std::chrono::duration<std::int64_t, std::pico>(1);
  CHECK(fine.deadline() > before);
}

TEST_CASE("a limit that is a time point ends then") {
  const auto at = steady_clock::now() + std::chrono::hours(1);
  CHECK(wait_limit(at).deadline() == at);
  CHECK_FALSE(wait_limit(at).has_passed());
  CHECK(wait_limit(steady_clock::now()).has_passed());
  CHECK(wait_limit(steady_clock::time_point::min()).has_passed());
}

TEST_CASE("a limit that is not above zero has passed") {
  for (const int length : {0, -1, std::numeric_limits<int>::min()}) {
    CHECK(wait_limit(std::chrono::seconds(length)).has_passed());
    CHECK(wait_limit(std::chrono::nanoseconds(length)).has_passed());
  }
  CHECK(wait_limit(std::chrono::hours::min()).has_passed());
  using seconds = std::chrono::duration<double>;
  CHECK(wait_limit(seconds(std::numeric_limits<double>::quiet_NaN())).has_passed());
  CHECK(wait_limit(-seconds(std::numeric_limits<double>::infinity())).has_passed());
}

TEST_CASE("a limit that is longer than the clock counts is for ever") {
  CHECK(wait_limit::forever().is_forever());
  CHECK(wait_limit(steady_clock::time_point::max()).is_forever());
  CHECK(wait_limit(std::chrono::hours::max()).is_forever());
  CHECK(wait_limit(std::chrono::nanoseconds::max()).is_forever());
  CHECK(wait_limit(std::chrono::minutes::max()) == wait_limit::forever());
  using seconds = std::chrono::duration<double>;
  CHECK(wait_limit(seconds(std::numeric_limits<double>::infinity())).is_forever());
  CHECK_FALSE(wait_limit::forever().has_passed());
  const wait_limit century = std::chrono::hours(24) * 36525;
  CHECK_FALSE(century.is_forever());
  CHECK_FALSE(century.has_passed());
}
