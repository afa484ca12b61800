// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stop requests to waits.

#include "device.hpp"

#include <array>
#include <atomic>
#include <stop_token>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using slots = std::array<work_completion, 4>;
using queue_of_both =
    completion_queue_with<completion_feature::waitable | completion_feature::queue_pair_number>;

/// Far more than the promised 20 ms, to allow for other load on the machine, and far less than the
/// duration of a wait without a stop request.
constexpr std::chrono::milliseconds soon{10000};

/// The time that a wait sleeps after the stop request; the wait has to have slept before it.
template <class Wait>
[[nodiscard]] clock::duration sleeps_on(Wait wait) {
  std::stop_source source;
  std::atomic<clock::rep> requested_at{0};
  std::thread requester = later(
      [&] {
        requested_at = clock::now().time_since_epoch().count();
        source.request_stop();
      },
      std::chrono::milliseconds(30));
  const bool is_empty = wait(wait_limit(patience, source.get_token()));
  const auto ended = clock::now().time_since_epoch();
  requester.join();
  CHECK(is_empty);
  // It did not end before the request.
  CHECK(ended.count() >= requested_at);
  return ended - clock::duration(requested_at);
}

/// Checks that a wait does not sleep if the stop was requested before it began.
template <class Wait>
void check_requested_before(Wait wait) {
  std::stop_source source;
  source.request_stop();
  const auto before = clock::now();
  CHECK(wait(source.get_token()));
  CHECK(wait(wait_limit(patience, source.get_token())));
  CHECK(clock::now() - before < soon);
}

}  // namespace

TEST_CASE("a stop request ends a wait for completions") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  const auto wait = [&](const wait_limit& until) {
    slots into;
    return must(queue.wait(into, until)).empty();
  };
  CHECK(sleeps_on(wait) < soon);
  check_requested_before(wait);
}

TEST_CASE("a stop request ends a wait for completions field by field") {
  const testbed bed;
  auto created = queue_of_both::create(bed.context, 4);
  if (!created.has_value()) SKIP(created.error().message());
  const queue_of_both queue = must(std::move(created));
  const auto wait = [&](const wait_limit& until) {
    return must(queue.wait_each([](const auto&) {}, until)) == 0;
  };
  CHECK(sleeps_on(wait) < soon);
  check_requested_before(wait);
}

TEST_CASE("a stop request ends a wait for the events of a channel") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto wait = [&](const wait_limit& until) { return !must(channel.wait(until)); };
  CHECK(sleeps_on(wait) < soon);
  check_requested_before(wait);
}

TEST_CASE("a stop request ends a wait for asynchronous events") {
  const testbed bed;
  const auto wait = [&](const wait_limit& until) {
    return !must(bed.context.wait_async_event(until));
  };
  CHECK(sleeps_on(wait) < soon);
  check_requested_before(wait);
}

TEST_CASE("a stop request ends a wait that sleeps behind another wait of its channel") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto first = must(waitable_completion_queue::create(channel, 4));
  const auto second = must(waitable_completion_queue::create(channel, 4));
  std::stop_source end;
  std::atomic<bool> ended{false};
  std::thread other([&] {
    slots into;
    static_cast<void>(first.wait(into, wait_limit(patience, end.get_token())));
    ended = true;
  });
  // steady: the wait has likely begun; it ends in the same way if not
  std::this_thread::sleep_for(moment);
  const auto wait = [&](const wait_limit& until) {
    slots into;
    return must(second.wait(into, until)).empty();
  };
  CHECK(sleeps_on(wait) < soon);
  CHECK_FALSE(ended);
  end.request_stop();
  other.join();
}

TEST_CASE("a wait whose stop was requested before it began takes the available completions") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 64));
  buffer<> memory(bed.domain, 8);
  connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
  std::stop_source source;
  source.request_stop();
  must(alone.post_write({.remote = memory.remote()}, {.id = 7}));
  slots into;
  wait_until(
      [&] {
        const auto there = must(queue.wait(into, source.get_token()));
        return !there.empty() && there.front().wr_id() == 7;
      },
      "the write has to complete");
}

TEST_CASE("a wait with a token but without a stop request sleeps until a completion arrives") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 64));
  buffer<> memory(bed.domain, 8);
  connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
  const std::stop_source source;
  std::thread writer =
      later([&] { must(alone.post_write({.remote = memory.remote()}, {.id = 3})); },
            std::chrono::milliseconds(35));
  slots into;
  const auto outcome = queue.wait(into, wait_limit(patience, source.get_token()));
  writer.join();
  REQUIRE(must(outcome).size() == 1);
  CHECK(into.front().wr_id() == 3);
  const auto until = clock::now() + std::chrono::milliseconds(25);
  CHECK(must(queue.wait(into, wait_limit(until, source.get_token()))).empty());
  CHECK(clock::now() >= until);
}
