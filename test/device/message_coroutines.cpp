// SPDX-License-Identifier: Apache-2.0
// Coroutines that await messages of an inbox.

#include "coroutines.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE("coroutines at both ends exchange messages of a pool") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 128, 64));
  inbox requests = must(inbox::open(ends.right, pool));
  inbox answers = must(inbox::open(ends.left, pool));
  constexpr int rounds = 300;
  const auto serving = [&]() -> routine {
    for (int i = 0; i < rounds; ++i) {
      VERBSPP_CO_TRY(request, co_await requests.async_wait());
      VERBSPP_CO_TRYV(co_await ends.right.async_send(std::move(request)));
    }
    co_return success();
  };
  const auto asking = [&]() -> routine {
    for (int i = 0; i < rounds; ++i) {
      VERBSPP_CO_TRY(request, pool.take());
      VERBSPP_CO_TRYV(request.assign(std::as_bytes(std::span(&i, 1))));
      VERBSPP_CO_TRYV(co_await ends.left.async_send(std::move(request)));
      VERBSPP_CO_TRY(answer, co_await answers.async_wait(patience));
      CHECK(std::ranges::equal(answer.bytes(), std::as_bytes(std::span(&i, 1))));
    }
    co_return success();
  };
  auto server = serving();
  auto client = asking();
  wait_until(
      [&] {
        ends.left.poll();
        ends.right.poll();
        return client.is_done() && server.is_done();
      },
      "the echo");
  must(client.get());
  must(server.get());
}

TEST_CASE("a limit that expires during a wait for a message leaves the channel connected") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  auto limited = await_message(messages, short_limit);
  std::stop_source stop;
  auto stopped = await_message(messages, stop.get_token());
  CHECK(failure_of(std::move(run(limited, ends.right))) == error_kind::timed_out);
  CHECK_FALSE(stopped.is_done());
  stop.request_stop();
  CHECK(failure_of(std::move(run(stopped, ends.right))) == error_kind::cancelled);
  auto sender = send_text(ends.left, "after");
  auto patient = await_message(messages, patience);
  CHECK(must(std::move(run(patient, ends.right))).size() == 5);
  must(run(sender, ends.left));
}

TEST_CASE("coroutines that wait for one inbox get its messages in order") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  std::optional<inbox> messages = must(inbox::open(ends.right, pool));
  std::vector<eager<result<message>>> waiters;
  for (int i = 0; i < 4; ++i) waiters.push_back(await_message(*messages));
  // An inbox may be moved while coroutines are waiting for its messages.
  inbox moved = std::move(*messages);
  for (std::size_t i = 0; i < 3; ++i) {
    auto sender = send_text(ends.left, std::string_view("123", i + 1));
    CHECK(must(std::move(run(waiters[i], ends.right))).size() == i + 1);
    must(run(sender, ends.left));
  }
  CHECK_FALSE(waiters[3].is_done());
  // When the inbox is destroyed, the waiting coroutines get an error.
  {
    const inbox last = std::move(moved);
  }
  CHECK(ends.right.deadline() <= clock::now());
  CHECK(failure_of(std::move(run(waiters[3], ends.right))) == error_kind::invalid_input);
  auto refused = await_message(*messages);
  CHECK(failure_of(std::move(refused.get())) == error_kind::invalid_input);
}

TEST_CASE("a coroutine that awaits another message waits behind those that wait already") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  int taken = 0;
  const auto take = [&](int wanted) -> routine {
    for (int i = 0; i < wanted; ++i) {
      VERBSPP_CO_TRYV(co_await messages.async_wait());
      ++taken;
    }
    co_return success();
  };
  const routine greedy = take(2);
  const routine modest = take(1);
  // Both messages have arrived when the channel polls.
  for (int i = 0; i < 2; ++i)
    must(ends.left.send({.elements = inline_payload(std::string_view("text"))}, patience));
  wait_until(
      [&] {
        ends.right.poll();
        return taken == 2;
      },
      "two messages");
  CHECK(modest.is_done());
  CHECK_FALSE(greedy.is_done());
}

TEST_CASE("a wait for a message continues when a place returns to the pool") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 2, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  std::vector<routine> senders;
  for (int i = 0; i < 3; ++i) senders.push_back(send_text(ends.left, "text"));
  auto first = await_message(messages);
  auto second = await_message(messages);
  const message kept = must(std::move(run(first, ends.right)));
  message released = must(std::move(run(second, ends.right)));
  auto third = await_message(messages);
  ends.right.poll();
  CHECK_FALSE(third.is_done());
  CHECK(ends.right.deadline() <= clock::now() + std::chrono::milliseconds(10));
  static_cast<void>(message(std::move(released)));  // destroys the message, so its place is free
  CHECK(run(third, ends.right).has_value());
  for (routine& each : senders) must(run(each, ends.left));
}
