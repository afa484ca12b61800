// SPDX-License-Identifier: Apache-2.0
/// \file
/// Exchanges, which connect channels and queue pairs over sockets that the test provides.

#include "../socket_pair.hpp"
#include "channels.hpp"
#include "transports.hpp"
#include <verbspp/exchange.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
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

/// Drives both sides of an exchange in turn, on one thread.
template <class Left, class Right>
void run(Left& left, Right& right) {
  const auto deadline = clock::now() + patience;
  bool is_left_over = false;
  bool is_right_over = false;
  while (!is_left_over || !is_right_over) {
    if (clock::now() > deadline) throw failure(__FILE__, __LINE__, "the exchange does not end");
    const auto over = [](const result<bool>& step) { return step.has_error() || step.value(); };
    is_left_over = over(left.poll());
    is_right_over = over(right.poll());
  }
}

/// A fixture with the device, and the sockets that connect the two sides of an exchange.
struct two_sides {
  testbed bed;
  socket_pair sockets;
};

using readable = remote_memory<access::remote_read>;

}  // namespace

TEST_CASE_METHOD(two_sides,
                 "one call on each side connects channels and returns the peer's values") {
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

TEST_CASE_METHOD(two_sides,
                 "receives posted before an exchange take the first messages of the connection") {
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

TEST_CASE_METHOD(two_sides, "an exchange without values connects") {
  auto other = std::async(std::launch::async, [&] {
    return exchange(sockets[1], must(bed.domain.build_channel().build()), patience,
                    {.application = "test", .version = 2});
  });
  const auto left = must(exchange(sockets[0], must(bed.domain.build_channel().build()), patience,
                                  {.application = "test", .version = 2}));
  CHECK(must(other.get()).channel.is_connected());
  CHECK(left.channel.is_connected());
}

TEST_CASE_METHOD(two_sides, "one side alone can send values") {
  buffer<access::remote_read> shown(bed.domain, pattern(64, 1));
  const bool has_options = GENERATE(true, false);
  const exchange_options options{.application = "test", .version = 3};
  auto other = std::async(std::launch::async, [&] {
    auto prepared = must(bed.domain.build_channel().build());
    return has_options ? exchange<readable>(sockets[1], std::move(prepared), patience, options)
                       : exchange<readable>(sockets[1], std::move(prepared), patience);
  });
  auto prepared = must(bed.domain.build_channel().build());
  const auto left = must(
      has_options ? exchange(sockets[0], std::move(prepared), shown.remote(), patience, options)
                  : exchange(sockets[0], std::move(prepared), shown.remote(), patience));
  auto right = must(other.get());
  CHECK(left.channel.is_connected());
  buffer<> seen(bed.domain, 64);
  must(right.channel.read({.elements = seen.scatter(), .remote = right.theirs}));
  CHECK(seen.bytes() == shown.bytes());
}

TEST_CASE_METHOD(two_sides, "an exchange connects a renewed channel") {
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

TEST_CASE_METHOD(
    two_sides,
    "a channel stays prepared if its exchange fails early and is closed if it fails late") {
  channel left(must(bed.domain.build_channel().build()));
  SECTION("the exchange fails early") {
    CHECK(failure_of(exchange(sockets[0], left, 1ms)) == error_kind::timed_out);
    CHECK(left.state() == channel_state::prepared);
  }
  SECTION("the exchange fails late") {
    channel right(must(bed.domain.build_channel().build()));
    using session = exchange_session<std::tuple<>, detail::channel_in_place>;
    auto one = std::optional(must(
        session::start(sockets[0], detail::channel_in_place{&left}, std::tuple<>(), patience)));
    {
      auto other = must(
          session::start(sockets[1], detail::channel_in_place{&right}, std::tuple<>(), patience));
      while (!left.is_connected()) {
        static_cast<void>(must(other.poll()));
        static_cast<void>(must(one->poll()));
      }
    }
    wait_until([&] { return !one->poll().has_value(); }, "the failure");
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

TEST_CASE_METHOD(two_sides, "ends that do not match both report it") {
  auto other = std::async(std::launch::async, [&] {
    return exchange(sockets[1], must(bed.domain.build_channel<transport::uc>().build()), patience);
  });
  const error left =
      failure_of(exchange(sockets[0], must(bed.domain.build_channel().build()), patience));
  const error right = failure_of(other.get());
  // The end that is the first to detect the mismatch notifies the other end. The other end reports
  // either this notification or the mismatch that it detected itself.
  CHECK(left == error_kind::mismatch);
  CHECK(right == error_kind::mismatch);
  CHECK(left.message().find("transport differs") != std::string::npos);
  CHECK(right.message().find("transport differs") != std::string::npos);
}

TEST_CASE_METHOD(two_sides, "a stop request ends an exchange") {
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return exchange(sockets[0], must(bed.domain.build_channel().build()), stop.get_token());
  });
  stop.request_stop();
  CHECK(failure_of(waiting.get()) == error_kind::cancelled);
}

TEST_CASE("an exchange that is abandoned releases the objects that it owns") {
  testbed bed;
  // If an object cannot be released, the testbed fails the test.
  for (int steps = 0; steps < 8; ++steps) {
    socket_pair sockets;
    using session = exchange_session<std::tuple<>, prepared_channel>;
    auto left = must(session::start(sockets[0], must(bed.domain.build_channel().build()),
                                    std::tuple<>(), patience));
    auto right = std::optional(must(session::start(
        sockets[1], must(bed.domain.build_channel().build()), std::tuple<>(), patience)));
    bool is_over = false;
    for (int i = 0; i < steps && !is_over; ++i) {
      is_over = right->poll().value();
      static_cast<void>(left.poll());
    }
    if (is_over) break;
    right.reset();
    sockets.close(1);
    wait_until([&] { return !left.poll().has_value(); }, "the failure");
    CHECK(failure_of(left.poll()) == error_kind::not_connected);
  }
}

namespace {

using plain_session = exchange_session<std::tuple<>, prepared_channel>;

struct cut {
  std::size_t direction;
  std::size_t at;  ///< the proxy forwards only the bytes before this offset
};
struct met_by_proxy {
  std::array<std::optional<channel>, 2> channels{};
  std::array<std::size_t, 2> passed{};  ///< how many bytes were forwarded in each direction
};

/// Connects two channels through a proxy. If `given` is set, the proxy closes both connections at
/// the byte that `given` specifies.
met_by_proxy through_proxy(const testbed& bed, const std::array<socket_pair*, 2>& sockets,
                           std::optional<cut> given) {
  std::array<std::optional<plain_session>, 2> sides;
  for (std::size_t i = 0; i < 2; ++i)
    sides[i].emplace(must(plain_session::start(
        (*sockets[i])[0], must(bed.domain.build_channel().build()), std::tuple<>(), patience)));
  met_by_proxy outcome;
  bool is_cut = false;
  const auto hand_on = [&](std::size_t direction) {
    std::array<char, 4096> bytes{};
    std::size_t& passed = outcome.passed[direction];
    const bool is_cut_here = given && given->direction == direction;
    const std::size_t most = is_cut_here ? std::max<std::size_t>(given->at - passed, 1) : 4096;
    if (is_cut) return;
    const ssize_t count = ::recv((*sockets[direction])[1], bytes.data(), most, MSG_DONTWAIT);
    if (count <= 0) return;
    is_cut = is_cut_here && given->at == passed;
    if (is_cut) {
      for (socket_pair* each : sockets) each->close(1);
      return;
    }
    const auto size = static_cast<std::size_t>(count);
    passed += size;
    CHECK(::send((*sockets[1 - direction])[1], bytes.data(), size, MSG_NOSIGNAL) == count);
  };
  std::array<bool, 2> are_over{};
  wait_until(
      [&] {
        for (std::size_t i = 0; i < 2; ++i) {
          if (!are_over[i]) {
            const auto step = sides[i]->poll();
            are_over[i] = step.has_error() || step.value();
          }
          hand_on(i);
        }
        return are_over[0] && are_over[1];
      },
      "both sides to finish");
  for (std::size_t i = 0; i < 2; ++i) {
    auto met = std::move(*sides[i]).finish();
    if (met.has_value()) outcome.channels[i].emplace(std::move(met).assume_value().channel);
  }
  return outcome;
}

}  // namespace

TEST_CASE("a channel whose peer was cut off in the exchange fails to connect or detects it later") {
  testbed bed;
  std::array<std::size_t, 2> whole{};
  {
    socket_pair left;
    socket_pair right;
    const auto met = through_proxy(bed, {&left, &right}, {});
    REQUIRE((met.channels[0] && met.channels[1]));
    whole = met.passed;
  }
  constexpr std::size_t last_frame = 8;
  constexpr std::size_t stride = 29;
  for (const std::size_t direction : {0U, 1U})
    for (std::size_t at = 0; at < whole[direction];
         at += at + stride < whole[direction] ? stride : 1) {
      CAPTURE(direction, at);
      socket_pair left;
      socket_pair right;
      auto met = through_proxy(bed, {&left, &right}, cut{direction, at});
      CHECK(!met.channels[1 - direction]);
      if (!met.channels[direction]) continue;
      CHECK(at >= whole[direction] - last_frame);
      channel& alone = *met.channels[direction];
      alone.watch((direction == 0 ? left : right)[0]);
      buffer<> memory(bed.domain, 8);
      auto arriving = must(alone.post_receive({.elements = memory.scatter()}));
      CHECK(!arriving.wait(patience).has_value());
      REQUIRE(alone.failure());
      CHECK(alone.failure()->root() == error_kind::cancelled);
    }
}

TEST_CASE_METHOD(two_sides,
                 "a session that was moved from or has finished is refused with a message") {
  using session = exchange_session<std::tuple<>, prepared_channel>;
  const auto start = [&](int socket) {
    return must(
        session::start(socket, must(bed.domain.build_channel().build()), std::tuple<>(), patience));
  };
  const auto check_empty = [](session& empty) {
    const auto refused = [](const error& told) {
      return told == error_kind::invalid_input &&
             told.message().find("was moved from, or its result was already taken") !=
                 std::string::npos;
    };
    CHECK(refused(failure_of(empty.poll())));
    CHECK(refused(failure_of(std::move(empty).finish())));
    CHECK(refused(failure_of(std::move(empty).run())));
    empty.refuse(error(error_kind::cancelled, "test", "no peer receives this"));
    CHECK(empty.file_descriptor() == -1);
    CHECK(empty.events() == 0);
    CHECK(empty.deadline() == wait_limit::time_point::max());
  };
  session moved = start(sockets[0]);
  session left = std::move(moved);
  session right = start(sockets[1]);
  check_empty(moved);
  run(left, right);
  CHECK(must(std::move(left).finish()).channel.is_connected());
  check_empty(left);
}
