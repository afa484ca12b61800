// SPDX-License-Identifier: Apache-2.0

// RNR stands for "receiver not ready". Tests the timer that the receiver requests, and how often
// the sender retries.

#include "../catch.hpp"
#include <verbspp/qp/parameters.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

using std::chrono::nanoseconds;
using verbspp::error_kind;
using verbspp::min_rnr_timer;
using verbspp::rnr_retry_count;
using namespace std::chrono_literals;

namespace {

struct timer_code {
  int code;
  nanoseconds duration;
};

// The codes, sorted by their durations. The table in the architecture specification gives the
// durations in milliseconds.
constexpr std::array<timer_code, 32> timers{{
    {1, 10us},      {2, 20us},     {3, 30us},      {4, 40us},      {5, 60us},      {6, 80us},
    {7, 120us},     {8, 160us},    {9, 240us},     {10, 320us},    {11, 480us},    {12, 640us},
    {13, 960us},    {14, 1280us},  {15, 1920us},   {16, 2560us},   {17, 3840us},   {18, 5120us},
    {19, 7680us},   {20, 10240us}, {21, 15360us},  {22, 20480us},  {23, 30720us},  {24, 40960us},
    {25, 61440us},  {26, 81920us}, {27, 122880us}, {28, 163840us}, {29, 245760us}, {30, 327680us},
    {31, 491520us}, {0, 655360us},
}};

}  // namespace

TEST_CASE("each min RNR timer code has the duration of the architecture's table") {
  for (const auto& [code, duration] : timers) {
    CAPTURE(code);
    const auto timer = min_rnr_timer::from(code);
    REQUIRE(timer.has_value());
    CHECK(timer.value().code() == code);
    CHECK(timer.value().duration() == duration);
  }
}

TEST_CASE(
    "a min RNR timer created from a duration has the first code whose duration is not shorter") {
  nanoseconds shorter{-1};
  for (const auto& [code, duration] : timers) {
    CAPTURE(code);
    CHECK(min_rnr_timer::at_least(shorter + 1ns).value().code() == code);
    CHECK(min_rnr_timer::at_least(duration - 1ns).value().code() == code);
    CHECK(min_rnr_timer::at_least(duration).value().code() == code);
    shorter = duration;
  }
}

TEST_CASE(
    "a min RNR timer cannot be negative or longer than the longest duration that has a code") {
  for (const nanoseconds duration : {-1ns, nanoseconds::min(), 655360001ns, nanoseconds::max()}) {
    const auto timer = min_rnr_timer::at_least(duration);
    REQUIRE(timer.has_error());
    CHECK(timer.error() == error_kind::invalid_input);
  }
  CHECK(min_rnr_timer::at_least(656ms).error().message() ==
        "parameter: min RNR NAK timer in ns (0..655360000): 656000000 is out of range");
}

TEST_CASE("a duration beyond the range of nanoseconds is refused as a min RNR timer") {
  CHECK(min_rnr_timer::at_least(std::chrono::seconds::max()).has_error());
  CHECK(min_rnr_timer::at_least(std::chrono::hours(5124096)).has_error());
  CHECK(min_rnr_timer::at_least(std::chrono::seconds::min()).has_error());
  CHECK(min_rnr_timer::at_least(
            std::chrono::duration<std::uint64_t>(std::numeric_limits<std::uint64_t>::max()))
            .has_error());
}

TEST_CASE("a min RNR timer can be created from any unit and is rounded up") {
  using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
  CHECK(min_rnr_timer::at_least(1ms).value().code() == 14);
  CHECK(min_rnr_timer::at_least(0s).value().code() == 1);
  CHECK(min_rnr_timer::at_least(picoseconds(10'000'000)).value().code() == 1);
  CHECK(min_rnr_timer::at_least(picoseconds(10'000'001)).value().code() == 2);
  constexpr min_rnr_timer constant = 1ms;
  CHECK(constant.code() == 14);
}

TEST_CASE("there are 32 min RNR timer codes") {
  for (const int code : {-1, 32, 255, 256, 288, std::numeric_limits<int>::min()}) {
    CAPTURE(code);
    CHECK(min_rnr_timer::from(code).error() == error_kind::invalid_input);
  }
  CHECK(min_rnr_timer::from(32).error().message() ==
        "parameter: min RNR NAK timer code (0..31): 32 is out of range");
}

TEST_CASE("the default min RNR timer is code 12 for 0.64 ms") {
  CHECK(min_rnr_timer().code() == 12);
  CHECK(min_rnr_timer().duration() == 640us);
  CHECK(min_rnr_timer() == min_rnr_timer(12));
}

TEST_CASE("an RNR retry count is 0 to 6 or unlimited") {
  for (int count = 0; count <= 6; ++count) {
    const auto retries = rnr_retry_count::from(count);
    REQUIRE(retries.has_value());
    CHECK(retries.value().code() == count);
    CHECK_FALSE(retries.value().is_unlimited());
  }
  CHECK(rnr_retry_count::unlimited().is_unlimited());
  CHECK(rnr_retry_count::unlimited().code() == 7);
  CHECK(rnr_retry_count(6).code() == 6);
}

TEST_CASE("an RNR retry count of 7 is refused because it would not mean seven") {
  for (const int count : {-1, 7, 8, 256, 263}) {
    CAPTURE(count);
    CHECK(rnr_retry_count::from(count).error() == error_kind::invalid_input);
  }
  CHECK(rnr_retry_count::from(7).error().message() ==
        "parameter: RNR retry count (0..6, or unlimited()): 7 is out of range");
}
