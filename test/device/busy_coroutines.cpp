// SPDX-License-Identifier: Apache-2.0
// Coroutines whose requests finish continually, so each poll resumes some of them.

#include "coroutines.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Coroutines that write until `rounds` reaches `enough`. They outnumber the places in the send
/// queue, so posting has to take completions to make room, which makes other coroutines ready to be
/// resumed.
struct many_writers : two_channels {
  many_writers() {
    for (unsigned i = 0; i < 64; ++i) writers.push_back(write());
  }
  routine write() {
    const auto remote = must(theirs.remote());
    while (++rounds < enough) {
      const auto posted = left.post_write(mine, {.remote = remote});
      VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    }
    co_return success();
  }
  [[nodiscard]] bool are_done() const {
    return std::ranges::all_of(writers, [](const routine& each) { return each.is_done(); });
  }

  unsigned enough = 50'000;
  shared_bytes mine = share_bytes(bed, 64, 1);
  shared_bytes theirs = share_bytes(bed, 64);
  unsigned rounds = 0;
  std::vector<routine> writers{};
};

}  // namespace

TEST_CASE_METHOD(
    many_writers,
    "poll returns even if the coroutines that it resumes take completions themselves") {
  enough = 10'000;
  unsigned most = 0;
  wait_until(
      [&] {
        const unsigned before = rounds;
        left.poll();
        most = std::max(most, rounds - before);
        return are_done();
      },
      "the coroutines");
  for (routine& each : writers) must(each.get());
  CHECK(most < enough / 4);
}

TEST_CASE_METHOD(many_writers, "a limit expires although each poll resumes other coroutines") {
  const auto place = share_bytes(bed, 64);
  const auto receive = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await left.async_receive({.elements = place}, std::chrono::milliseconds(1)));
    co_return success();
  };
  routine receiving = receive();
  for (unsigned polls = 0; polls < 40 && !receiving.is_done(); ++polls) left.poll();
  CHECK(receiving.is_done());
  CHECK(rounds < enough);
}

TEST_CASE("a coroutine that waits for room precedes one that posts after its request") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  channel& left = ends.left;
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  const std::uint32_t capacity = left.core().sends().capacity();
  bool has_room = false;
  const auto writing = [&]() -> routine {
    while (!has_room)
      VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    co_return success();
  };
  const auto waiting = [&]() -> eager<result<void>> {
    const auto waited = co_await left.async_room(capacity);
    has_room = true;
    co_return waited;
  };
  routine writer = writing();
  auto waiter = waiting();
  CHECK_FALSE(waiter.is_done());
  must(run(waiter, left));
  must(run(writer, left));
}

TEST_CASE_METHOD(two_channels, "a poll resumes all coroutines whose requests it has completed") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  std::uint64_t resumed = left.core().sends().completed();
  const auto write = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    ++resumed;
    co_return success();
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<routine> writers;
    for (int i = 0; i < 8; ++i) writers.push_back(write());
    wait_until(
        [&] {
          left.poll();
          CHECK(resumed == left.core().sends().completed());
          return writers.back().is_done();
        },
        "the writes");
  }
}

TEST_CASE("every wait whose limit has expired ends in the same poll") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  const auto limit = std::chrono::steady_clock::now();
  std::vector<eager<result<message>>> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(await_message(messages, limit));
  ends.right.poll();
  for (auto& each : waiting) {
    REQUIRE(each.is_done());
    CHECK(failure_of(std::move(each.get())) == error_kind::timed_out);
  }
}

TEST_CASE("a channel is polled again soon if one poll leaves coroutines that are due") {
  const testbed bed;
  channel_pair ends = connect_channels(bed);
  channel& left = ends.left;
  const auto mine = share_bytes(bed, 8, 1);
  const auto theirs = share_bytes(bed, 8);
  const auto remote = must(theirs.remote());
  constexpr unsigned most = 1024;  // resumed by one poll
  unsigned resumed = 0;
  const auto wait_for_room = [&]() -> eager<result<void>> {
    const auto waited = co_await left.async_room(left.core().sends().capacity());
    ++resumed;
    co_return waited;
  };
  const auto write = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    co_return success();
  };
  routine writing = write();
  std::vector<eager<result<void>>> waiting;
  for (unsigned i = 0; i < most + 10; ++i) waiting.push_back(wait_for_room());
  REQUIRE(resumed == 0);
  wait_until(
      [&] {
        left.poll();
        return resumed != 0;
      },
      "the write");
  CHECK(resumed == most);
  CHECK(left.deadline() <= std::chrono::steady_clock::now());
  left.poll();
  CHECK(resumed == waiting.size());
  for (auto& each : waiting) must(each.get());
  must(run(writing, left));
}
