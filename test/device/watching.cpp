// SPDX-License-Identifier: Apache-2.0
/// \file
/// Waits for completions that also watch one of the program's file descriptors and the state
/// of the device.

#include "device.hpp"
#include "failing_verb.hpp"
#include "sockets.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using slots = std::array<work_completion, 8>;

/// The time within which a wait must return. It is long because other load on the machine may delay
/// the test.
constexpr std::chrono::milliseconds soon{10000};

/// A queue pair that writes to itself, and whose requests complete in a queue that no other queue
/// pair uses.
struct writer {
  writer(const testbed& bed, waitable_completion_queue completes_in)
      : queue(std::move(completes_in)),
        memory(bed.domain, 64),
        pair(connect_to_itself(
            must(bed.builder(queue).access(all_rights).max_send_work_requests(128).build()))) {}
  writer(const testbed& bed, std::size_t capacity)
      : writer(bed, must(waitable_completion_queue::create(bed.context, capacity))) {}

  void write(std::uint64_t id) { must(pair.post_write({.remote = memory.remote()}, {.id = id})); }
  /// Posts requests as fast as possible until `enough` is true or `patience` is over, so that the
  /// completion queue overruns even though a wait is polling it.
  void overrun(const std::atomic<bool>& enough) {
    for (const auto until = clock::now() + patience; !enough && clock::now() < until;)
      if (!pair.post_write({.remote = memory.remote()}).has_value()) std::this_thread::yield();
  }

  waitable_completion_queue queue;
  buffer<> memory;
  connected pair;
};

/// Waits until the queue fails. Completions that arrive before the failure are ignored.
[[nodiscard]] result<watched_completions> wait_for_failure(const waitable_completion_queue& queue) {
  slots into;
  for (;;) {
    // Completions that are not solicited do not wake the wait.
    VERBSPP_TRY(outcome, queue.wait_watching(into, patience, -1, notify_for::solicited_only));
    if (outcome.ended_by != wait_end::completions) return outcome;
  }
}

}  // namespace

TEST_CASE(
    "a wait with a watched descriptor returns completions or ends at its limit or a stop request") {
  const testbed bed;
  writer alone(bed, 64);
  const sockets peer;
  slots into;
  for (const int descriptor : {-1, peer.watched()}) {
    const auto until = clock::now() + moment;
    auto outcome = must(alone.queue.wait_watching(into, until, descriptor));
    CHECK(outcome.ended_by == wait_end::limit);
    CHECK(outcome.completions.empty());
    CHECK_FALSE(outcome.event);
    CHECK(clock::now() >= until);
    std::thread writes = later([&] { alone.write(7); });
    outcome = must(alone.queue.wait_watching(into, wait_limit::forever(), descriptor));
    writes.join();
    CHECK(outcome.ended_by == wait_end::completions);
    REQUIRE(outcome.completions.size() == 1);
    CHECK(outcome.completions.front().wr_id() == 7);
    std::stop_source source;
    std::thread stops = later([&] { source.request_stop(); });
    const auto before = clock::now();
    outcome =
        must(alone.queue.wait_watching(into, wait_limit(patience, source.get_token()), descriptor));
    CHECK(clock::now() - before < soon);
    stops.join();
    CHECK(outcome.ended_by == wait_end::limit);
  }
}

TEST_CASE("a watched file descriptor ends the wait when it is readable or hung up") {
  const testbed bed;
  writer alone(bed, 64);
  slots into;
  for (const bool hangs_up : {false, true}) {
    sockets peer;
    std::thread other = later([&] {
      if (hangs_up)
        peer.hang_up();
      else
        peer.speak();
    });
    const auto outcome =
        must(alone.queue.wait_watching(into, wait_limit::forever(), peer.watched()));
    other.join();
    CHECK(outcome.ended_by == wait_end::file_descriptor);
    // A wait reports a readable descriptor even if its limit has already expired, unless there are
    // completions.
    CHECK(
        must(alone.queue.wait_watching(into, clock::time_point::min(), peer.watched())).ended_by ==
        wait_end::file_descriptor);
    alone.write(1);
    wait_until(
        [&] {
          return must(alone.queue.wait_watching(into, patience, peer.watched())).ended_by ==
                 wait_end::completions;
        },
        "the write to complete");
  }
}

TEST_CASE("a wait with a watched descriptor refuses invalid descriptors and empty ranges") {
  const testbed bed;
  auto queue = must(waitable_completion_queue::create(bed.context, 4));
  slots into;
  constexpr int closed = 1 << 20;
  const error e = failure_of(queue.wait_watching(into, patience, closed));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(),
             Catch::Contains("the watched file descriptor") && Catch::Contains("is not open"));
  CHECK(failure_of(queue.wait_watching({}, patience, -1)) == error_kind::invalid_input);
  const auto moved = std::move(queue);
  // NOLINTNEXTLINE(bugprone-use-after-move): the test checks the moved-from queue
  CHECK(failure_of(queue.wait_watching(into, patience, -1)) == error_kind::invalid_input);
}

TEST_CASE("a queue that overruns during a wait ends the wait with the event") {
  const testbed bed;
  writer alone(bed, 1);
  std::atomic<bool> enough{false};
  std::thread overruns = later([&] { alone.overrun(enough); });
  const auto ended = wait_for_failure(alone.queue);
  enough = true;
  overruns.join();
  const auto outcome = must(ended);
  CHECK(outcome.ended_by == wait_end::async_event);
  REQUIRE(outcome.event);
  CHECK(outcome.event->type() == async_event_type::completion_queue_error);
  CHECK(outcome.event->concerns(alone.queue));
  // The program gets the event as well, and may get it more than once: Linux's software driver
  // repeats it for each completion for which there was no room.
  int told = 0;
  while (const auto event = must(bed.context.poll_async_event()))
    if (event->type() == async_event_type::completion_queue_error) ++told;
  CHECK(told >= 1);
  if (device_name().starts_with("soft")) CHECK(told == 1);
}

TEST_CASE("a wait is ended by a failure even if another thread reads its event") {
  const testbed bed;
  std::atomic<bool> done{false};
  std::atomic<int> told{0};
  std::thread reader([&] {
    while (!done) {
      const auto event = bed.context.poll_async_event();
      if (!event.has_value()) return;
      if (event.assume_value() &&
          event.assume_value()->type() == async_event_type::completion_queue_error)
        ++told;
    }
  });
  constexpr int rounds = 60;
  std::vector<result<watched_completions>> outcomes;
  for (int round = 0; round < rounds; ++round) {
    writer alone(bed, 1);
    std::atomic<bool> enough{false};
    std::thread overruns([&] {
      // steady: the pauses vary the time between the start of the wait and the overrun; the test
      // passes with any pause
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 10)));
      alone.overrun(enough);
    });
    outcomes.push_back(wait_for_failure(alone.queue));
    enough = true;
    overruns.join();
    // Wait for the event now, because the destruction of the queue would drop it.
    const auto until = clock::now() + patience;
    while (told <= round && clock::now() < until) std::this_thread::yield();
  }
  done = true;
  reader.join();
  for (const auto& each : outcomes) CHECK(must(each).ended_by == wait_end::async_event);
  CHECK(told >= rounds);
  if (device_name().starts_with("soft")) CHECK(told == rounds);
}

TEST_CASE(
    "a device that fails ends all waits with watched descriptors and notifies the program once") {
  const testbed bed;
  constexpr std::size_t count = 3;
  std::vector<waitable_completion_queue> queues;
  for (std::size_t i = 0; i < count; ++i)
    queues.push_back(must(waitable_completion_queue::create(bed.context, 4)));
  const sockets peer;
  std::array<std::atomic<bool>, count> ended{};
  std::atomic<int> told{0};
  std::vector<std::thread> waiters;
  std::stop_source enough;
  const auto before = clock::now();
  {
    const failing_device failing("after:50ms=device-fatal");
    for (std::size_t i = 0; i < count; ++i)
      waiters.emplace_back([&, i] {
        slots into;
        const auto outcome = queues[i].wait_watching(into, patience, i == 0 ? -1 : peer.watched());
        ended[i] = outcome.has_value() &&
                   outcome.assume_value().ended_by == wait_end::async_event &&
                   outcome.assume_value().event->type() == async_event_type::device_fatal;
      });
    for (int i = 0; i < 2; ++i)
      waiters.emplace_back([&] {
        const auto event = bed.context.wait_async_event(wait_limit(patience, enough.get_token()));
        if (event.has_value() && event.assume_value()) ++told;
      });
    for (std::size_t i = 0; i < count; ++i) waiters[i].join();
    while (told == 0 && clock::now() - before < soon) std::this_thread::yield();
    const auto left = bed.context.poll_async_event();
    enough.request_stop();
    for (std::size_t i = count; i < waiters.size(); ++i) waiters[i].join();
    CHECK(!must(left));
  }
  CHECK(clock::now() - before < soon);
  for (const auto& each : ended) CHECK(each);
  CHECK(told == 1);
}

TEST_CASE("a failure that precedes a wait ends the wait") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  const failing_device failing("device-fatal");
  slots into;
  for (int i = 0; i < 2; ++i) {
    const auto outcome = must(queue.wait_watching(into, patience, -1));
    CHECK(outcome.ended_by == wait_end::async_event);
    REQUIRE(outcome.event);
    CHECK(outcome.event->severity() == async_event_severity::fatal);
  }
}

TEST_CASE("threads with and without a watched descriptor can wait for the queues of one channel") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  constexpr std::size_t count = 4;
  constexpr std::uint64_t rounds = 100;
  const sockets peer;
  std::vector<std::unique_ptr<writer>> writers;
  for (std::size_t i = 0; i < count; ++i)
    writers.push_back(
        std::make_unique<writer>(bed, must(waitable_completion_queue::create(channel, 64))));
  std::array<std::atomic<std::uint64_t>, count> got{};
  std::vector<std::thread> waiters;
  for (std::size_t which = 0; which < count; ++which)
    waiters.emplace_back([&, which] {
      const waitable_completion_queue& queue = writers[which]->queue;
      slots into;
      while (got[which] < rounds) {
        const auto until = clock::now() + patience;
        std::size_t taken = 0;
        if (which % 2 == 0) {
          const auto outcome = queue.wait(into, until);
          if (outcome.has_value()) taken = outcome.assume_value().size();
        } else {
          const auto outcome = queue.wait_watching(into, until, peer.watched());
          if (outcome.has_value()) taken = outcome.assume_value().completions.size();
        }
        // A wait that returns the completion only at the deadline has failed, because the
        // completion should have woken it earlier.
        if (taken == 0 || clock::now() >= until) return;
        got[which] += taken;
      }
    });
  for (std::uint64_t id = 0; id < rounds; ++id)
    for (std::size_t which = 0; which < count; ++which) {
      writers[(which + id) % count]->write(id);
      if (id % 8 == 0)
        wait_until([&] { return got[(which + id) % count] == id + 1; },
                   "all completions to be taken");
    }
  for (std::thread& each : waiters) each.join();
  for (const auto& each : got) CHECK(each == rounds);
}

TEST_CASE("each cause that ends a wait has a name") {
  CHECK(to_string(wait_end::completions) == std::string("completions"));
  CHECK(to_string(wait_end::file_descriptor) == std::string("file descriptor"));
  CHECK(to_string(wait_end::async_event) == std::string("asynchronous event"));
  CHECK(to_string(wait_end::limit) == std::string("limit"));
}
