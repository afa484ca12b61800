// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/qp/parameters.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>

using std::chrono::nanoseconds;
using verbspp::ack_timeout;
using verbspp::error_kind;
using namespace std::chrono_literals;

namespace {

// The durations that codes 1 to 31 stand for, in nanoseconds.
constexpr std::array<std::int64_t, 31> durations{
    8192,          16384,        32768,        65536,         131072,        262144,
    524288,        1048576,      2097152,      4194304,       8388608,       16777216,
    33554432,      67108864,     134217728,    268435456,     536870912,     1073741824,
    2147483648,    4294967296,   8589934592,   17179869184,   34359738368,   68719476736,
    137438953472,  274877906944, 549755813888, 1099511627776, 2199023255552, 4398046511104,
    8796093022208,
};

}  // namespace

TEST_CASE("each ACK timeout code has the duration 4.096 us x 2^code") {
  int code = 0;
  for (const std::int64_t duration : durations) {
    ++code;
    CAPTURE(code);
    const auto timeout = ack_timeout::from(code);
    REQUIRE(timeout.has_value());
    CHECK(timeout.value().code() == code);
    CHECK(timeout.value().duration() == nanoseconds(duration));
    CHECK_FALSE(timeout.value().is_infinite());
  }
  CHECK(code == 31);
}

TEST_CASE("an ACK timeout created from a duration has the smallest code that is not shorter") {
  int code = 0;
  nanoseconds shorter{-1};
  for (const std::int64_t count : durations) {
    ++code;
    CAPTURE(code);
    const nanoseconds duration(count);
    CHECK(ack_timeout::at_least(shorter + 1ns).value().code() == code);
    CHECK(ack_timeout::at_least(duration - 1ns).value().code() == code);
    CHECK(ack_timeout::at_least(duration).value().code() == code);
    shorter = duration;
  }
}

TEST_CASE("an ACK timeout cannot be negative or longer than the longest duration that has a code") {
  for (const nanoseconds duration :
       {-1ns, nanoseconds::min(), nanoseconds(8796093022209), nanoseconds::max()}) {
    const auto timeout = ack_timeout::at_least(duration);
    REQUIRE(timeout.has_error());
    CHECK(timeout.error() == error_kind::invalid_input);
  }
  CHECK(ack_timeout::at_least(-1us).error().message() ==
        "parameter: ACK timeout in ns (0..8796093022208): -1000 is out of range");
}

TEST_CASE("a duration beyond the range of nanoseconds is refused as an ACK timeout") {
  CHECK(ack_timeout::at_least(std::chrono::seconds::max()).has_error());
  CHECK(ack_timeout::at_least(std::chrono::hours(5124096)).has_error());
  CHECK(ack_timeout::at_least(std::chrono::seconds::min()).has_error());
}

TEST_CASE("an ACK timeout can be created from any unit and is rounded up") {
  CHECK(ack_timeout::at_least(100ms).value().code() == 15);
  CHECK(ack_timeout::at_least(2h).value().code() == 31);
  constexpr ack_timeout constant = 1s;
  CHECK(constant.code() == 18);
}

TEST_CASE("an ACK timeout code is 1 to 31 and code 0 must be requested as infinite") {
  for (const int code : {-1, 0, 32, 256, 257, std::numeric_limits<int>::max()}) {
    CAPTURE(code);
    CHECK(ack_timeout::from(code).error() == error_kind::invalid_input);
  }
  CHECK(ack_timeout::from(0).error().message() ==
        "parameter: ACK timeout code (1..31, or infinite()): 0 is out of range");
  CHECK(ack_timeout::infinite().is_infinite());
  CHECK(ack_timeout::infinite().code() == 0);
  CHECK(ack_timeout::infinite().duration() == nanoseconds::max());
}

TEST_CASE("the default ACK timeout is code 14 for 67.1 ms") {
  CHECK(ack_timeout().code() == 14);
  CHECK(ack_timeout() == ack_timeout(14));
}
