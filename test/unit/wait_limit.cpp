// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/base/wait_limit.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <ratio>
#include <stop_token>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace verbspp;
using std::chrono::steady_clock;

static_assert(std::is_convertible_v<std::chrono::milliseconds, wait_limit>);
static_assert(std::is_convertible_v<steady_clock::time_point, wait_limit>);
// Neither a number without a unit nor a time from a clock that is not steady is a limit.
static_assert(!std::is_convertible_v<int, wait_limit>);
static_assert(!std::is_convertible_v<std::chrono::system_clock::time_point, wait_limit>);

TEST_CASE("a limit created from a duration expires that long after its creation") {
  const auto before = steady_clock::now();
  const wait_limit limit = std::chrono::milliseconds(100);
  const auto after = steady_clock::now();
  CHECK(limit.deadline() >= before + std::chrono::milliseconds(100));
  CHECK(limit.deadline() <= after + std::chrono::milliseconds(100));
  CHECK_FALSE(limit.is_forever());
  const wait_limit fine = std::chrono::duration<std::int64_t, std::pico>(1);
  CHECK(fine.deadline() > before);
}

TEST_CASE("a limit created from a time point expires at that time") {
  const auto at = steady_clock::now() + std::chrono::hours(1);
  CHECK(wait_limit(at).deadline() == at);
  CHECK_FALSE(wait_limit(at).has_passed());
  CHECK(wait_limit(steady_clock::now()).has_passed());
  CHECK(wait_limit(steady_clock::time_point::min()).has_passed());
}

TEST_CASE("a limit of zero or less has already expired") {
  for (const int length : {0, -1, std::numeric_limits<int>::min()}) {
    CHECK(wait_limit(std::chrono::seconds(length)).has_passed());
    CHECK(wait_limit(std::chrono::nanoseconds(length)).has_passed());
  }
  CHECK(wait_limit(std::chrono::hours::min()).has_passed());
  using seconds = std::chrono::duration<double>;
  CHECK(wait_limit(seconds(std::numeric_limits<double>::quiet_NaN())).has_passed());
  CHECK(wait_limit(-seconds(std::numeric_limits<double>::infinity())).has_passed());
}

TEST_CASE("a limit longer than the range of the clock never expires") {
  CHECK(wait_limit::forever().is_forever());
  CHECK(wait_limit(steady_clock::time_point::max()).is_forever());
  CHECK(wait_limit(std::chrono::hours::max()).is_forever());
  CHECK(wait_limit(std::chrono::nanoseconds::max()).is_forever());
  CHECK(wait_limit(std::chrono::minutes::max()).is_forever());
  using seconds = std::chrono::duration<double>;
  CHECK(wait_limit(seconds(std::numeric_limits<double>::infinity())).is_forever());
  CHECK_FALSE(wait_limit::forever().has_passed());
  const wait_limit century = std::chrono::hours(24) * 36525;
  CHECK_FALSE(century.is_forever());
  CHECK_FALSE(century.has_passed());
}

namespace {

/// A stop token that reads a flag.
struct flag_token {
  [[nodiscard]] bool stop_requested() const noexcept { return *flag; }
  const std::atomic<bool>* flag;
};

/// A stop token of the largest size that a limit can store. It counts how many copies of the token
/// exist.
struct counting_token {
  explicit counting_token(int& alive) noexcept : alive_(&alive), self_(this) { ++*alive_; }
  counting_token(const counting_token& other) noexcept : alive_(other.alive_), self_(this) {
    ++*alive_;
  }
  counting_token& operator=(const counting_token&) = delete;
  ~counting_token() {
    // A copy counts only if it is still at the address at which it was constructed.
    if (self_ == this) --*alive_;
  }
  [[nodiscard]] bool stop_requested() const noexcept { return self_ == this && *alive_ > 100; }

 private:
  int* alive_;
  counting_token* self_;
};
static_assert(sizeof(counting_token) == 2 * sizeof(void*));

wait_limit returned(std::stop_token token) { return {std::chrono::hours(1), token}; }

}  // namespace

static_assert(std::is_convertible_v<std::stop_token, wait_limit>);
static_assert(std::is_convertible_v<flag_token, wait_limit>);
// wait_limit also has a function stop_requested(), but it is not a stop token.
static_assert(!std::is_constructible_v<wait_limit, std::chrono::seconds, wait_limit>);
static_assert(!std::is_constructible_v<wait_limit, int, std::stop_token>);
static_assert(sizeof(wait_limit) <= 4 * sizeof(void*));
static_assert([] {
  wait_limit limit = wait_limit::forever();
  const wait_limit copy = limit;  // NOLINT(performance-unnecessary-copy-initialization)
  limit = copy;
  return limit.is_forever() && !limit.stop_requested();
}());

TEST_CASE("a limit created from a stop token expires when the stop is requested") {
  std::stop_source source;
  const wait_limit limit = source.get_token();
  CHECK_FALSE(limit.is_forever());
  CHECK_FALSE(limit.has_passed());
  CHECK(limit.deadline() == steady_clock::time_point::max());
  source.request_stop();
  CHECK(limit.has_passed());
  CHECK(limit.stop_requested());
  CHECK(wait_limit(source.get_token()).has_passed());
}

TEST_CASE("a limit with a time and a token expires when the first of them does") {
  std::stop_source source;
  const wait_limit late(std::chrono::hours(1), source.get_token());
  const wait_limit past(steady_clock::now(), source.get_token());
  const wait_limit none(std::chrono::seconds(0), source.get_token());
  CHECK_FALSE(late.has_passed());
  for (const wait_limit& each : {past, none}) {
    CHECK(each.has_passed());
    CHECK_FALSE(each.stop_requested());
    CHECK(each.failure("wait") == error_kind::timed_out);
  }
  source.request_stop();
  CHECK(late.has_passed());
  CHECK(late.stop_requested());
  CHECK(wait_limit(std::chrono::hours::max(), source.get_token()).has_passed());
}

TEST_CASE("the error of an expired limit distinguishes a timeout from a stop request") {
  std::stop_source source;
  const wait_limit limit(std::chrono::seconds(0), source.get_token());
  CHECK(limit.failure("wait for peers", "start them").message() ==
        "wait for peers: timed out; start them");
  CHECK(limit.failure("wait for peers") == std::errc::timed_out);
  source.request_stop();
  CHECK(limit.failure("wait for peers") == error_kind::cancelled);
  CHECK(limit.failure("wait for peers") == std::errc::operation_canceled);
  CHECK(limit.failure("wait for peers", "start them, or allow more time").message() ==
        "wait for peers: cancelled; a stop was requested");
  CHECK(wait_limit(steady_clock::now()).failure("wait") == error_kind::timed_out);
}

TEST_CASE("a limit stores stop tokens of different types and copies and moves them") {
  std::atomic<bool> flag{false};
  const wait_limit limit = flag_token{&flag};
  wait_limit assigned = wait_limit::forever();
  assigned = limit;
  wait_limit moved = std::move(assigned);  // NOLINT(performance-move-const-arg)
  const std::vector<wait_limit> stored(3, moved);
  std::stop_source source;
  const wait_limit other = returned(source.get_token());
  moved = other;
  moved = *&moved;
  CHECK_FALSE(moved.has_passed());
  flag = true;
  CHECK(limit.has_passed());
  CHECK(assigned.stop_requested());  // NOLINT(bugprone-use-after-move): a move copies the limit
  for (const wait_limit& each : stored) CHECK(each.stop_requested());
  CHECK_FALSE(moved.has_passed());
  source.request_stop();
  CHECK(moved.stop_requested());
  CHECK(other.stop_requested());
  moved = std::chrono::hours(1);
  CHECK_FALSE(moved.has_passed());
}

TEST_CASE("a limit keeps its token alive as long as it exists") {
  int alive = 0;
  {
    wait_limit limit = counting_token(alive);
    CHECK(alive == 1);
    {
      const wait_limit copy = limit;
      CHECK(alive == 2);
      CHECK_FALSE(copy.has_passed());
    }
    CHECK(alive == 1);
    wait_limit moved = std::move(limit);
    CHECK_FALSE(moved.stop_requested());
    moved = moved.deadline();
    limit = moved;  // NOLINT(bugprone-use-after-move): it gets a new value
    CHECK(alive == 0);
    moved = wait_limit(std::chrono::seconds(1), counting_token(alive));
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
  std::optional<std::stop_source> source(std::in_place);
  const wait_limit kept = source->get_token();
  source->request_stop();
  source.reset();
  CHECK(kept.stop_requested());
}

TEST_CASE("a limit with a stop token divides a sleep into short periods") {
  const auto at = steady_clock::now() + std::chrono::hours(1);
  CHECK(wait_limit(at).sleep_until() == at);
  CHECK(wait_limit::forever().sleep_until() == steady_clock::time_point::max());
  std::stop_source source;
  const auto before = steady_clock::now();
  const auto look = wait_limit(source.get_token()).sleep_until();
  CHECK(look > before);
  CHECK(look <= steady_clock::now() + std::chrono::milliseconds(20));
  CHECK(wait_limit(before, source.get_token()).sleep_until() == before);
}

TEST_CASE("a limit whose stop was requested does not sleep") {
  std::stop_source source;
  const wait_limit limit(std::chrono::hours(1), source.get_token());
  CHECK(limit.sleep_until() > steady_clock::now());
  source.request_stop();
  CHECK(limit.sleep_until() == steady_clock::time_point::min());
  const auto before = steady_clock::now() - std::chrono::seconds(1);
  CHECK(wait_limit(before).sleep_until() == before);
}

TEST_CASE("a limit returns the time that is left until it expires") {
  using std::chrono::nanoseconds;
  CHECK(wait_limit::forever().remaining() == std::nullopt);
  const wait_limit limit = std::chrono::hours(1);
  const auto first = limit.remaining();
  const auto second = limit.remaining();
  REQUIRE(first);
  REQUIRE(second);
  CHECK(*first <= std::chrono::hours(1));
  CHECK(*second > std::chrono::minutes(50));
  CHECK(*second <= *first);
  CHECK(wait_limit(nanoseconds::zero()).remaining() == nanoseconds::zero());
  CHECK(wait_limit(steady_clock::time_point::min()).remaining() == nanoseconds::zero());
  std::stop_source source;
  const wait_limit stoppable = source.get_token();
  CHECK(stoppable.remaining() == std::nullopt);
  source.request_stop();
  CHECK(stoppable.remaining() == nanoseconds::zero());
}

TEST_CASE("a stop that is requested on one thread is seen on another") {
  std::stop_source source;
  const wait_limit limit = source.get_token();
  std::thread requester([&] { source.request_stop(); });
  while (!limit.has_passed()) std::this_thread::yield();
  requester.join();
  CHECK(limit.stop_requested());
}
