// SPDX-License-Identifier: Apache-2.0
/// \file
/// Exchanges that connect: channels and queue pairs, over sockets that the test has.

#include "../socket_pair.hpp"
#include "channels.hpp"
#include "transports.hpp"
#include <verbspp/exchange.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// Both sides of an exchange, in turn, on one thread.
template <class Left, class Right>
void run(Left& left, Right& right) {
  const auto deadline = clock::now() + patience;
  bool is_left_over = false;
  bool is_right_over = false;
  while (!is_left_over || !is_right_over) {
    if (clock::now() > deadline) throw failure(__FILE__, __LINE__, "the exchange does not end");
    const auto over = [](const result<bool>& step) { return step.has_error() || step.value(); };
    is_left_over = over(left.advance());
    is_right_over = over(right.advance());
  }
}

using readable = remote_memory<access::remote_read>;

}  // namespace

TEST_CASE("one call on each side connects channels, and brings the peer's handles") {
  testbed bed;
  socket_pair sockets;
  buffer<access::remote_read> shown(bed.domain, pattern(64, 1));
  auto other = std::async(std::launch::async, [&] {
    return exchange<std::tuple<bounded_text<16>, readable>>(
        sockets[1], must(bed.domain.build_channel().build()), std::uint32_t{7}, patience);
  });
  auto left = must(exchange<std::uint32_t>(sockets[0], must(bed.domain.build_channel().build()),
                                           std::tuple(bounded_text<16>("shown"), shown.remote()),
                                           patience));
  auto right = must(other.get());
  CHECK(left.theirs == 7);
  const auto& [name, memory] = right.theirs;
  CHECK(name.view() == "shown");
  buffer<> seen(bed.domain, 64);
  must(right.channel.read({.elements = seen.scatter(), .remote = memory}));
  CHECK(seen.bytes() == shown.bytes());
  CHECK(left.channel.is_connected());
}

TEST_CASE("receives that were posted before an exchange take its first messages") {
  testbed bed;
  socket_pair sockets;
  buffer<> sent(bed.domain, pattern(32, 2));
  buffer<> received(bed.domain, 32);
  auto receiver = must(bed.domain.build_channel().build());
  auto arriving = must(receiver.post_receive({.elements = received.scatter()}));
  using session = exchange_session<std::tuple<>, prepared_channel>;
  auto left = must(session::start(sockets[0], std::move(receiver), std::tuple<>(), patience));
  auto right = must(session::start(sockets[1], must(bed.domain.build_channel().build()),
                                   std::tuple<>(), patience));
  CHECK(failure_of(std::move(left).finish()) == error_kind::busy);
  run(left, right);
  auto receiving = must(std::move(left).finish());
  auto sending = must(std::move(right).finish());
  must(sending.channel.send({.elements = sent.gather()}));
  must(std::move(arriving).wait());
  CHECK(received.bytes() == sent.bytes());
}

TEST_CASE("an exchange without values connects") {
  testbed bed;
  socket_pair sockets;
  auto other = std::async(std::launch::async, [&] {
    return exchange(sockets[1], must(bed.domain.build_channel().build()), patience,
                    {.application = "test", .version = 2});
  });
  const auto left = must(exchange(sockets[0], must(bed.domain.build_channel().build()), patience,
                                  {.application = "test", .version = 2}));
  CHECK(must(other.get()).channel.is_connected());
  CHECK(left.channel.is_connected());
}

TEST_CASE("an exchange connects a channel that was renewed") {
  testbed bed;
  socket_pair sockets;
  channel left(must(bed.domain.build_channel().build()));
  channel right(must(bed.domain.build_channel().build()));
  for (int i = 0; i < 3; ++i) {
    auto other = std::async(std::launch::async,
                            [&] { return exchange<int>(sockets[1], right, i, patience); });
    CHECK(must(exchange<int>(sockets[0], left, -i, patience)) == i);
    CHECK(must(other.get()) == -i);
    buffer<> memory(bed.domain, 8);
    auto arriving = must(right.post_receive({.elements = memory.scatter()}));
    must(left.send({.elements = memory.gather()}));
    must(std::move(arriving).wait());
    must(left.renew());
    must(right.renew());
  }
}

TEST_CASE("a channel whose exchange fails early is prepared still, and closed later") {
  testbed bed;
  socket_pair sockets;
  channel left(must(bed.domain.build_channel().build()));
  SECTION("early") {
    CHECK(failure_of(exchange(sockets[0], left, 1ms)) == error_kind::timed_out);
    CHECK(left.state() == channel_state::prepared);
  }
  SECTION("late") {
    channel right(must(bed.domain.build_channel().build()));
    using session = exchange_session<std::tuple<>, detail::channel_in_place>;
    auto one = std::optional(must(
        session::start(sockets[0], detail::channel_in_place{&left}, std::tuple<>(), patience)));
    {
      auto other = must(
          session::start(sockets[1], detail::channel_in_place{&right}, std::tuple<>(), patience));
      while (!left.is_connected()) {
        static_cast<void>(must(other.advance()));
        static_cast<void>(must(one->advance()));
      }
    }
    wait_until([&] { return !one->advance().has_value(); }, "the failure");
    CHECK(left.is_connected());
    one.reset();
    CHECK(left.state() == channel_state::closed);
  }
}

TEMPLATE_TEST_CASE_SIG("an exchange connects queue pairs", "", ((transport Transport), Transport),
                       transport::rc, transport::uc) {
  testbed bed;
  socket_pair sockets;
  const auto builder = build_queue_pair<Transport>()
                           .protection_domain(bed.domain)
                           .access(access::local_write | access::remote_write);
  auto other = std::async(std::launch::async, [&] {
    return exchange<std::uint16_t>(sockets[1],
                                   must(builder.completion_queue(bed.right_queue).build()),
                                   std::uint16_t{2}, patience);
  });
  auto left = must(exchange<std::uint16_t>(sockets[0],
                                           must(builder.completion_queue(bed.left_queue).build()),
                                           std::uint16_t{1}, patience));
  auto right = must(other.get());
  CHECK(left.theirs == 2);
  CHECK(right.theirs == 1);
  buffer<> memory(bed.domain, 8);
  must(right.queue_pair.post_receive({.elements = memory.scatter()}, {.id = 1}));
  must(left.queue_pair.post_send({.elements = memory.gather()}, {.id = 2}));
  take_success(bed.right_queue, 1);
}

TEST_CASE("ends that do not fit say so at both") {
  testbed bed;
  socket_pair sockets;
  auto other = std::async(std::launch::async, [&] {
    return exchange(sockets[1], must(bed.domain.build_channel<transport::uc>().build()), patience);
  });
  const error left =
      failure_of(exchange(sockets[0], must(bed.domain.build_channel().build()), patience));
  const error right = failure_of(other.get());
  // Whoever finds out first tells the other, whose words are these, or its own.
  CHECK(left == error_kind::mismatch);
  CHECK(right == error_kind::mismatch);
  CHECK(left.message().find("transport differs") != std::string::npos);
  CHECK(right.message().find("transport differs") != std::string::npos);
}

TEST_CASE("a stop request ends an exchange that waits") {
  testbed bed;
  socket_pair sockets;
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return exchange(sockets[0], must(bed.domain.build_channel().build()), stop.get_token());
  });
  stop.request_stop();
  CHECK(failure_of(waiting.get()) == error_kind::cancelled);
}

TEST_CASE("an exchange lets go of what it does not connect") {
  testbed bed;
  // The watch of the test bed counts what could not be released.
  for (int steps = 0; steps < 8; ++steps) {
    socket_pair sockets;
    using session = exchange_session<std::tuple<>, prepared_channel>;
    auto left = must(session::start(sockets[0], must(bed.domain.build_channel().build()),
                                    std::tuple<>(), patience));
    auto right = std::optional(must(session::start(
        sockets[1], must(bed.domain.build_channel().build()), std::tuple<>(), patience)));
    bool is_over = false;
    for (int i = 0; i < steps && !is_over; ++i) {
      is_over = right->advance().value();
      static_cast<void>(left.advance());
    }
    if (is_over) break;
    right.reset();
    sockets.close(1);
    wait_until([&] { return !left.advance().has_value(); }, "the failure");
    CHECK(failure_of(left.advance()) == error_kind::not_connected);
  }
}
