// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stop requests that wake the loop or thread that waits on behalf of a coroutine or a session.

#include "../eager.hpp"
#include "../socket_pair.hpp"
#include "../stopping.hpp"
#include "channels.hpp"
#include "event_loop.hpp"
#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>

#include <array>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using routine = eager<transport_result<void>>;
using number_session = exchange_session<std::uint32_t, prepared_channel>;
using number_meeting = meeting_session<std::uint32_t, prepared_channel>;

/// Awaits a send that does not finish, because the peer has posted no receive.
routine send_in_vain(channel& link, wait_limit limit) {
  const std::array<std::byte, 1> text{};
  VERBSPP_CO_TRYV(co_await link.async_send({.elements = inline_payload(text)}, limit));
  co_return success();
}
routine await_message(inbox& messages, wait_limit limit) {
  VERBSPP_CO_TRYV(co_await messages.async_wait(limit));
  co_return success();
}
routine await_room(channel& link, wait_limit limit) {
  VERBSPP_CO_TRYV(co_await link.async_room(link.capacities().max_send_work_requests, limit));
  co_return success();
}
template <class Session>
routine run_session(event_loop& loop, Session session) {
  VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
  co_return success();
}
routine poll_always(event_loop& loop, channel& link) {
  for (;;) {
    VERBSPP_CO_TRYV(co_await loop.async_ready(link));
    link.poll();
  }
}

[[nodiscard]] bool is_cancelled(routine& one) {
  return error(failure_of(one.get())) == error_kind::cancelled;
}

/// A channel that sleeps, with an inbox. The peer posts no receives.
struct silent_channel {
  silent_channel()
      : ends(connect_channels(
            bed.domain.build_channel().max_inline_data(64).waiting(wait_mode::sleep()))) {}

  testbed bed{};
  channel_pair ends;
  channel& link{ends.left};
  message_pool pool{must(message_pool::create(bed.domain, 64, 64))};
  inbox messages{must(inbox::open(link, pool, {.depth = 8, .refill = 4}))};
};

[[nodiscard]] number_session start(const testbed& bed, int socket, const wait_limit& until) {
  return must(number_session::start(socket, must(bed.domain.build_channel().build()),
                                    std::uint32_t{1}, until));
}

}  // namespace

TEST_CASE("a stop request for a coroutine wakes the loop of its channel") {
  enum class awaits : std::uint8_t { send, room, message };
  const awaits what = GENERATE(awaits::send, awaits::room, awaits::message);
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          silent_channel alone;
          routine filling = send_in_vain(alone.link, patience);
          routine waiting = what == awaits::send   ? send_in_vain(alone.link, until)
                            : what == awaits::room ? await_room(alone.link, until)
                                                   : await_message(alone.messages, until);
          int rounds = 0;
          serve(alone.link, [&] {
            ++rounds;
            alone.link.poll();
            return waiting.is_done();
          });
          return is_cancelled(waiting) && rounds < 100;
        }).is_as_promised());
}

TEST_CASE("a stop request for a coroutine wakes the event loop of the library") {
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          silent_channel alone;
          event_loop loop;
          const routine polling = poll_always(loop, alone.link);
          routine waiting = await_message(alone.messages, until);
          while (!waiting.is_done())
            if (!must(loop.run_once(patience))) return false;
          return is_cancelled(waiting);
        }).is_as_promised());
}

TEST_CASE("a stop request for a coroutine wakes a thread that waits for its channel") {
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          silent_channel alone;
          routine waiting = await_message(alone.messages, until);
          const wait_limit latest = patience;
          for (int waits = 0; !waiting.is_done() && waits < 5; ++waits) {
            static_cast<void>(must(alone.link.wait(latest)));
            // At its limit, the wait would notice the stop request without having been woken.
            if (latest.has_passed()) return false;
            alone.link.poll();
          }
          return waiting.is_done() && is_cancelled(waiting) && alone.link.is_connected();
        }).is_as_promised());
}

TEST_CASE("a stop request for a coroutine wakes the waits and loops of its hub") {
  const bool is_loop = GENERATE(true, false);
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          const testbed bed;
          channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
          channel_pair ends = connect_channels(bed.domain.build_channel().hub(hub));
          const message_pool pool = must(message_pool::create(bed.domain, 8, 64));
          inbox messages = must(inbox::open(ends.left, pool, {.depth = 8, .refill = 4}));
          routine waiting = await_message(messages, until);
          if (is_loop) {
            serve(hub, [&] {
              must(hub.poll());
              return waiting.is_done();
            });
          } else {
            std::array<arrival, 1> slot;
            while (!waiting.is_done())
              for (const arrival& each : must(hub.wait(slot, patience)))
                if (each.source == ends.left.id()) ends.left.poll();
          }
          return is_cancelled(waiting) && ends.left.is_connected();
        }).is_as_promised());
}

TEST_CASE("a coroutine keeps a callback registered only while it awaits a channel") {
  silent_channel alone;
  counting_source stop;
  const wait_limit until(stop.get_token());
  {
    const routine destroyed = await_message(alone.messages, until);
    CHECK(stop.callbacks() == 1);
  }
  CHECK(stop.callbacks() == 0);
  // Until a stop is requested, a wait with a stop token requires no call of `poll`, so the channel
  // has no deadline.
  const routine waiting = await_message(alone.messages, until);
  CHECK(alone.link.deadline() == (wait_limit::time_point::max)());
  routine outlives = send_in_vain(alone.link, until);
  CHECK(stop.callbacks() == 2);
  alone.ends.left = channel();
  CHECK(outlives.is_done());
  CHECK(waiting.is_done());
  CHECK(stop.callbacks() == 0);
  stop.request_stop();
}

TEST_CASE("a stop that was requested before a wait ends the wait at the next poll") {
  silent_channel alone;
  std::stop_source stop;
  stop.request_stop();
  routine waiting = await_message(alone.messages, stop.get_token());
  const auto due = alone.link.deadline();
  CHECK(due <= clock::now());
  alone.link.poll();
  REQUIRE(waiting.is_done());
  CHECK(is_cancelled(waiting));
  // The stop request of a coroutine that no longer waits causes no more calls of `poll`.
  const routine next = await_message(alone.messages, wait_limit::forever());
  alone.link.poll();
  CHECK(alone.link.deadline() == (wait_limit::time_point::max)());
}

TEST_CASE("a stop may be requested at any moment of a wait, and is never lost") {
  silent_channel alone;
  bool is_destroyed = false;
  for (std::uint32_t i = 0; i < repetitions(200); ++i) {
    std::stop_source stop;
    std::optional<routine> waiting(await_message(alone.messages, stop.get_token()));
    std::thread requester([&] { stop.request_stop(); });
    is_destroyed = !is_destroyed;
    if (is_destroyed) {
      waiting.reset();
    } else {
      serve(alone.link, [&] {
        alone.link.poll();
        return waiting->is_done();
      });
      CHECK(is_cancelled(*waiting));
    }
    requester.join();
  }
  CHECK(alone.link.is_connected());
}

TEST_CASE("a stop may be requested while a channel is destroyed") {
  const testbed bed;
  for (std::uint32_t i = 0; i < repetitions(20); ++i) {
    channel_pair ends = connect_channels(
        bed.domain.build_channel().max_inline_data(64).waiting(wait_mode::sleep()));
    std::stop_source stop;
    const routine waiting = send_in_vain(ends.left, stop.get_token());
    std::thread requester([&] { stop.request_stop(); });
    ends.left = channel();
    CHECK(waiting.is_done());
    requester.join();
  }
}

TEST_CASE("a stop request wakes the loop of an exchange") {
  const bool is_library = GENERATE(true, false);
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          const testbed bed;
          const socket_pair sockets;
          number_session session = start(bed, sockets[0], until);
          if (!is_library) return is_stopped(session);
          event_loop loop;
          routine running = run_session(loop, std::move(session));
          while (!running.is_done())
            if (!must(loop.run_once(patience))) return false;
          return is_cancelled(running);
        }).is_as_promised());
}

TEST_CASE("an exchange with a stop token proceeds in a loop as without one") {
  const testbed bed;
  const socket_pair sockets;
  std::stop_source stop;
  event_loop loop;
  routine left = run_session(loop, start(bed, sockets[0], stop.get_token()));
  routine right = run_session(loop, start(bed, sockets[1], stop.get_token()));
  while (!left.is_done() || !right.is_done()) REQUIRE(must(loop.run_once(patience)));
  must(std::move(left.get()));
  must(std::move(right.get()));
}

TEST_CASE("an exchange polls its stop token if its descriptor is not used") {
  const testbed bed;
  const socket_pair sockets;
  counting_source stop;
  const number_session session = start(bed, sockets[0], stop.get_token());
  const auto polled_at = session.deadline();
  CHECK(polled_at <= clock::now() + std::chrono::milliseconds(10));
  CHECK(stop.callbacks() == 0);
  CHECK(session.file_descriptor() != sockets[0]);
  CHECK(session.file_descriptor() == session.file_descriptor());
  CHECK(stop.callbacks() == 1);
  CHECK(session.deadline() == (wait_limit::time_point::max)());
}

TEST_CASE("a stop request wakes the loop of a meeting") {
  const auto listener = must(tcp_listener::open("0"));
  // No program accepts the connection at the other listener, so the meeting gets no hello, and
  // waits.
  const auto silent = must(tcp_listener::open("0"));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          const testbed bed;
          number_meeting meeting = must(number_meeting::start(
              listener, "127.0.0.1", std::to_string(silent.port()),
              must(bed.domain.build_channel().build()), std::uint32_t{1}, until));
          return is_stopped(meeting);
        }).is_as_promised());
}
