// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stop requests that end waits.

#include "../socket_pair.hpp"
#include "../stopping.hpp"
#include "channels.hpp"
#include "groups.hpp"
#include <verbspp/exchange.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using slots = std::array<work_completion, 4>;
using queue_of_both =
    completion_queue_with<completion_feature::waitable | completion_feature::queue_pair_number>;

/// Requests a stop when the wait has probably begun to sleep. Returns how long it took for the wait
/// to end after the request.
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
  // The wait must not have ended before the stop was requested.
  CHECK(ended.count() >= requested_at);
  return ended - clock::duration(requested_at);
}

/// Checks that a wait ends soon if the stop was requested before it began.
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

TEST_CASE("a stop request ends a wait for completions that are read field by field") {
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

TEST_CASE("a stop request ends a wait that relies on another wait to read events") {
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
  // steady: after this pause, the wait has likely begun; if not, it ends in the same way
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

TEST_CASE("a wait whose stop was requested before it began returns the available completions") {
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
      "the write to complete");
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

TEST_CASE("a stop request wakes a thread that sleeps for completions") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          slots into;
          return queue.wait(into, until).value().empty();
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that waits for completions read field by field") {
  const testbed bed;
  auto created = queue_of_both::create(bed.context, 4);
  if (!created.has_value()) SKIP(created.error().message());
  const queue_of_both queue = must(std::move(created));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return queue.wait_each([](const auto&) {}, until).value() == 0;
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that sleeps for the events of a channel") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return !channel.wait(until).value();
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that sleeps for asynchronous events") {
  const testbed bed;
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return !bed.context.wait_async_event(until).value();
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that relies on another thread to read events") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto first = must(waitable_completion_queue::create(channel, 4));
  const auto second = must(waitable_completion_queue::create(channel, 4));
  counting_source end;
  std::thread other([&] {
    slots into;
    static_cast<void>(first.wait(into, wait_limit(patience, end.get_token())));
  });
  // When the other thread begins to sleep, it registers its stop callback. From then on, that
  // thread is the one that reads the channel's events.
  while (end.callbacks() == 0) std::this_thread::yield();
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          slots into;
          return second.wait(into, until).value().empty();
        }).is_as_promised());
  CHECK(end.callbacks() == 1);
  end.request_stop();
  other.join();
}

TEST_CASE("a stop request wakes a thread that sleeps on a channel") {
  const testbed bed;
  for (const wait_mode mode :
       {wait_mode::sleep(), wait_mode::spin_then_sleep(std::chrono::microseconds(20))}) {
    channel_pair ends = connect_channels(bed.domain.build_channel().waiting(mode));
    CHECK(stop_a_sleep([&](const wait_limit& until) {
            return ends.left.wait(until).value() == wait_end::limit;
          }).is_as_promised());
    buffer<> to(bed.domain, 64);
    auto receive = must(ends.left.post_receive({.elements = to.scatter()}));
    CHECK(stop_a_sleep([&](const wait_limit& until) {
            const error stopped = receive.wait(until).error();
            return stopped == error_kind::cancelled;
          }).is_as_promised());
  }
}

TEST_CASE("a stop request wakes a thread that sleeps on an inbox") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  channel_pair ends = connect_channels(bed.domain.build_channel().waiting(wait_mode::sleep()));
  auto arrivals = must(inbox::open(ends.left, pool, {.depth = 8}));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return arrivals.wait(until).error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that sleeps on a hub") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          std::array<arrival, 1> slot;
          return hub.wait(slot, until).error() == error_kind::cancelled;
        }).is_as_promised());
  auto clients = must(hub_clients<int>::create(hub));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return clients.wait(until).error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that sleeps on a group") {
  const testbed bed;
  auto groups = connect_groups(2, [&] {
    return prepare_group(bed.domain.build_channel()
                             .waiting(wait_mode::sleep())
                             .max_send_work_requests(8)
                             .max_receive_work_requests(8),
                         2);
  });
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          std::array<arrival, 1> slot;
          return groups[0].wait(slot, until).error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that sleeps in an exchange") {
  const testbed bed;
  const socket_pair sockets;
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return exchange(sockets[0], bed.domain.build_channel().build().value(), until).error() ==
                 error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request wakes a thread that waits for clients of an acceptor") {
  const testbed bed;
  auto clients = must(accept_exchanges<std::uint32_t>(
      must(tcp_listener::open("0", "127.0.0.1")),
      [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
        VERBSPP_TRY(prepared, bed.domain.build_channel().build());
        return exchange_offer{std::move(prepared), std::uint32_t{1}};
      }));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return clients.next(until).error() == error_kind::cancelled;
        }).is_as_promised());
}

TEST_CASE("a stop request at the same time as a completion does not lose the completion") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 64));
  buffer<> memory(bed.domain, 8);
  connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
  std::atomic<std::stop_source*> current{nullptr};
  std::atomic<std::uint32_t> requested{0};
  std::atomic<bool> is_over{false};
  std::thread requester([&] {
    while (!is_over) {
      std::stop_source* const source = current.exchange(nullptr);
      if (source == nullptr) {
        std::this_thread::yield();
        continue;
      }
      source->request_stop();
      ++requested;
    }
  });
  const std::uint32_t rounds = repetitions(500);
  std::uint32_t completions = 0;
  bool is_late = false;
  slots into;
  for (std::uint32_t round = 0; round < rounds && !is_late; ++round) {
    std::stop_source source;
    const wait_limit until(patience, source.get_token());
    must(alone.post_write({.remote = memory.remote()}, {.id = round}));
    current = &source;
    // There are two waits because the stop request may end the first one before it returns the
    // completion.
    completions += static_cast<std::uint32_t>(must(queue.wait(into, until)).size());
    completions += static_cast<std::uint32_t>(must(queue.wait(into, until)).size());
    is_late = clock::now() >= until.deadline();
    while (requested != round + 1) std::this_thread::yield();
  }
  is_over = true;
  requester.join();
  CHECK_FALSE(is_late);
  wait_until(
      [&] {
        completions += static_cast<std::uint32_t>(must(queue.poll(into)).size());
        return completions == rounds;
      },
      "each write to complete");
}
