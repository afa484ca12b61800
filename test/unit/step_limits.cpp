// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"

#include <ranks/step_limits.hpp>

#include <chrono>

using namespace std::chrono_literals;
using verbspp::wait_limit;
using verbspp::detail::step_limits;

namespace {

constexpr step_limits::time_point start{100h};

}  // namespace

TEST_CASE("a step's limit covers its wait, its questions to other ranks, and its reports") {
  for (const auto length : {1ms, 300ms, 2000ms, 60000ms}) {
    const wait_limit whole(start + length);
    const step_limits limits(whole, start);
    const auto waits_until = limits.waiting().deadline();
    const auto answers_until = limits.answers_until(waits_until);
    CAPTURE(length.count());
    CHECK(start + length / 2 < waits_until);
    CHECK(waits_until < answers_until);
    CHECK(limits.news_until(answers_until) <= start + length);
    if (length < 100ms) continue;
    CHECK(answers_until < start + length);
    CHECK(limits.news_until(answers_until) == start + length);
  }
}

TEST_CASE(
    "a step that fails before its limit has one limit for waiting for answers and another for "
    "sending reports") {
  const wait_limit whole(start + 1h);
  const step_limits limits(whole, start);
  CHECK(limits.answers_until(start) == start + step_limits::longest_answer);
  CHECK(limits.news_until(start) == start + step_limits::longest_news);
  const wait_limit forever = wait_limit::forever();
  const step_limits endless(forever, start);
  CHECK(endless.waiting().is_forever());
  CHECK(endless.answers_until(start) == start + step_limits::longest_answer);
}

TEST_CASE(
    "a step that begins after its limit waits only briefly for answers and not at all for "
    "reports") {
  const wait_limit whole(start - 1s);
  const step_limits limits(whole, start);
  CHECK(limits.waiting().deadline() == start - 1s);
  CHECK(limits.answers_until(start) == start + step_limits::shortest_answer);
  CHECK(limits.news_until(start) < start);
}
