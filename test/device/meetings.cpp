// SPDX-License-Identifier: Apache-2.0
/// \file
/// Meetings, in which two ends connect to each other. Both of them listen, and both of them
/// connect.

#include "../held_port.hpp"
#include "channels.hpp"
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <future>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

struct meeting_place {
  tcp_listener listener = must(tcp_listener::open("0"));
  std::string port = std::to_string(listener.port());
};

/// A fixture with a listener for each of two ends.
struct two_places {
  testbed bed;
  const meeting_place left{};
  const meeting_place right{};
};

auto meet_at(const testbed& bed, const meeting_place& own, const std::string& port, int number,
             const wait_limit& limit, const exchange_options& options = {}) {
  return meet<int>(own.listener, "127.0.0.1", port, must(bed.domain.build_channel().build()),
                   number, limit, options);
}

using number_session = meeting_session<int, prepared_channel>;

number_session start_at(const testbed& bed, const meeting_place& own, const std::string& host,
                        const std::string& port, int number, const wait_limit& limit = patience) {
  return must(number_session::start(own.listener, host, port,
                                    must(bed.domain.build_channel().build()), number, limit));
}

/// Sends a message from one end to the other, and checks that it arrives.
void check_connection(const testbed& bed, channel& from, channel& to) {
  buffer<> sent(bed.domain, pattern(8, 3));
  buffer<> received(bed.domain, 8);
  auto arriving = must(to.post_receive({.elements = received.scatter()}));
  must(from.send({.elements = sent.gather()}, patience));
  must(std::move(arriving).wait());
  CHECK(received.bytes() == sent.bytes());
}

}  // namespace

TEST_CASE_METHOD(two_places, "two ends that connect to each other at once get one connection") {
  // The listeners are the same in all rounds, so a meeting may find connections that earlier
  // meetings left behind, and must skip them.
  for (int i = 0; i < 20; ++i) {
    auto other =
        std::async(std::launch::async, [&] { return meet_at(bed, right, left.port, i, patience); });
    auto one = must(meet_at(bed, left, right.port, -i, patience));
    auto two = must(other.get());
    CHECK(one.met.theirs == i);
    CHECK(two.met.theirs == -i);
    // Both ends have also kept the same TCP connection.
    REQUIRE(::send(one.socket.descriptor(), "x", 1, MSG_NOSIGNAL) == 1);
    char letter = 0;
    wait_until([&] { return ::recv(two.socket.descriptor(), &letter, 1, MSG_DONTWAIT) == 1; },
               "the byte from the other end");
    check_connection(bed, one.met.channel, two.met.channel);
    check_connection(bed, two.met.channel, one.met.channel);
  }
}

TEST_CASE("two ends meet even if only one can reach the other or one starts later") {
  testbed bed;
  const meeting_place left;
  meeting_place right;
  const held_port unreachable;
  auto other = std::async(std::launch::async,
                          [&] { return meet_at(bed, right, unreachable.text(), 2, patience); });
  // The right end's attempts to connect are refused, because no program listens on the port
  // `unreachable`.
  // steady: this pause makes a refusal likely; the ends meet even without a refusal
  std::this_thread::sleep_for(20ms);
  auto one = must(meet_at(bed, left, right.port, 1, patience));
  auto two = must(other.get());
  CHECK(one.met.theirs == 2);
  CHECK(two.met.theirs == 1);
  check_connection(bed, one.met.channel, two.met.channel);
}

TEST_CASE("a meeting skips strangers and times out with the reason") {
  testbed bed;
  const meeting_place left;
  const auto stranger = must(tcp_socket::connect("127.0.0.1", left.port, patience));
  REQUIRE(::send(stranger.descriptor(), "GET / HTTP/1.1\r\n\r\n", 18, 0) == 18);
  const held_port closed;
  const error late = failure_of(meet_at(bed, left, closed.text(), 1, 100ms));
  CHECK(late == error_kind::timed_out);
  CHECK(late.message().find("no program listens there") != std::string::npos);
  std::stop_source stop;
  stop.request_stop();
  CHECK(failure_of(meet_at(bed, left, closed.text(), 1, stop.get_token())) ==
        error_kind::cancelled);
}

TEST_CASE_METHOD(two_places, "strangers that connect repeatedly do not displace the peer") {
  // The left end tries a port on which no program listens, so only the right end can reach
  // the other. In each round, strangers connect before the left end reads.
  const held_port unreachable;
  auto staying = start_at(bed, left, "127.0.0.1", unreachable.text(), 1);
  auto coming = start_at(bed, right, "127.0.0.1", left.port, 2);
  const std::size_t count = GENERATE(8U, 15U);
  bool is_done = false;
  wait_until(
      [&] {
        static_cast<void>(must(coming.poll()));
        std::vector<tcp_socket> strangers;
        for (std::size_t i = 0; i < count && !is_done; ++i)
          strangers.push_back(must(tcp_socket::connect("127.0.0.1", left.port, patience)));
        is_done = must(staying.poll());
        return is_done && must(coming.poll());
      },
      "the meeting");
  CHECK(must(std::move(staying).finish()).met.theirs == 2);
  CHECK(must(std::move(coming).finish()).met.theirs == 1);
}

TEST_CASE_METHOD(two_places, "a meeting waits while no descriptor is left for a connection") {
  const held_port unreachable;
  auto staying = start_at(bed, left, "127.0.0.1", unreachable.text(), 1);
  auto coming = start_at(bed, right, "127.0.0.1", left.port, 2);
  pollfd arrived{.fd = left.listener.descriptor(), .events = POLLIN, .revents = 0};
  wait_until(
      [&] {
        static_cast<void>(must(coming.poll()));
        return ::poll(&arrived, 1, 0) == 1;
      },
      "the connection");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none_left{.rlim_cur = 1, .rlim_max = before.rlim_max};  // descriptor 0 is in use
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none_left) == 0);
  const auto without = staying.poll();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(!must(without));
  auto other = std::async(std::launch::async, [&] { return must(std::move(coming).run()); });
  CHECK(must(std::move(staying).run()).met.theirs == 2);
  CHECK(other.get().met.theirs == 1);
}

TEST_CASE_METHOD(two_places, "a meeting ends if its listener is shut down") {
  const held_port unreachable;
  auto staying = start_at(bed, left, "127.0.0.1", unreachable.text(), 1);
  REQUIRE(::shutdown(left.listener.descriptor(), SHUT_RD) == 0);
  CHECK(failure_of(std::move(staying).run()).native_errno() == EINVAL);
}

TEST_CASE_METHOD(two_places, "a meeting that fails sends the reason to the ends that it accepted") {
  const held_port unreachable;
  auto staying = start_at(bed, left, "127.0.0.1", unreachable.text(), 1);
  const tcp_socket other = must(tcp_socket::connect("127.0.0.1", left.port, patience));
  pollfd arrived{.fd = left.listener.descriptor(), .events = POLLIN, .revents = 0};
  wait_until([&] { return ::poll(&arrived, 1, 0) == 1; }, "the connection");
  CHECK_FALSE(must(staying.poll()));
  REQUIRE(::shutdown(left.listener.descriptor(), SHUT_RD) == 0);
  const error why = [&] {
    auto failing = std::move(staying);
    return failure_of(std::move(failing).run());
  }();
  std::string told;
  wait_until(
      [&] {
        std::array<char, 1024> bytes{};
        const auto size = ::recv(other.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (size > 0) told.append(bytes.data(), static_cast<std::size_t>(size));
        return size == 0;
      },
      "the end of the connection");
  CHECK_THAT(told, Catch::EndsWith(why.message()));
}

TEST_CASE_METHOD(two_places, "a meeting with invalid options is refused before it has a peer") {
  const held_port unreachable;
  const auto refused = [&](const exchange_options& options) {
    return failure_of(meet_at(bed, left, unreachable.text(), 1, patience, options));
  };
  CHECK(refused({.application = "a\nb"}) == error_kind::invalid_input);
  const std::string longest(1000, 'a');
  CHECK(refused({.application = longest}) == error_kind::invalid_input);
  const std::array<std::byte, 4> short_secret{};
  const error_kind kind = refused({.secret = short_secret}).kind();
  CHECK((kind == error_kind::invalid_input || kind == error_kind::not_supported));
}

TEST_CASE_METHOD(two_places, "silent strangers that fill all places are displaced by the peer") {
  const held_port unreachable;
  auto staying = start_at(bed, left, "127.0.0.1", unreachable.text(), 1);
  std::vector<tcp_socket> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(must(tcp_socket::connect("127.0.0.1", left.port, patience)));
    static_cast<void>(must(staying.poll()));
  }
  auto other =
      std::async(std::launch::async, [&] { return meet_at(bed, right, left.port, 2, patience); });
  CHECK(must(std::move(staying).run()).met.theirs == 2);
  CHECK(must(other.get()).met.theirs == 1);
}

TEST_CASE_METHOD(two_places, "a meeting with itself or with an unsuitable end is refused") {
  SECTION("itself") {
    const error alone = failure_of(meet_at(bed, left, left.port, 1, patience));
    CHECK(alone == error_kind::mismatch);
    CHECK(alone.message().find("itself") != std::string::npos);
  }
  SECTION("another application") {
    const held_port unreachable;
    std::stop_source stop;
    auto other = std::async(std::launch::async, [&] {
      return meet_at(bed, right, unreachable.text(), 1, wait_limit(patience, stop.get_token()),
                     {.application = "one"});
    });
    // The end that connects detects the mismatch and fails. The other end can't know whether that
    // client was its peer, so it keeps waiting, and reports the mismatch when its wait ends.
    for (int i = 0; i < 2; ++i) {
      const error one =
          failure_of(meet_at(bed, left, right.port, 1, patience, {.application = "two"}));
      CHECK(one == error_kind::mismatch);
      CHECK(one.message().find("this application is") != std::string::npos);
    }
    stop.request_stop();
    const error two = failure_of(other.get());
    CHECK(two == error_kind::cancelled);
    CHECK(two.message().find("this application is") != std::string::npos);
  }
  SECTION("a server") {
    auto other = std::async(std::launch::async, [&] {
      const auto socket = must(right.listener.accept(patience));
      return exchange<int>(socket.descriptor(), must(bed.domain.build_channel().build()), 1,
                           patience);
    });
    const error told = failure_of(meet_at(bed, left, right.port, 1, patience));
    CHECK(told.message().find("use of meet differs") != std::string::npos);
    CHECK(failure_of(other.get()) == error_kind::mismatch);
  }
  SECTION("no listener") {
    meeting_place closed;
    closed.listener.close();
    CHECK(failure_of(meet_at(bed, closed, right.port, 1, patience)) == error_kind::invalid_input);
  }
}

TEST_CASE("an event loop drives many meetings at once on one thread") {
  testbed bed;
  constexpr std::size_t count = 8;
  std::vector<meeting_place> left(count);
  std::vector<meeting_place> right(count);
  std::vector<number_session> sessions;
  for (std::size_t i = 0; i < count; ++i) {
    const int number = static_cast<int>(i);
    sessions.push_back(start_at(bed, left[i], "127.0.0.1", right[i].port, number));
    // "localhost" is resolved on another thread, so that the loop does not have to wait for it.
    sessions.push_back(
        start_at(bed, right[i], i == 0 ? "localhost" : "127.0.0.1", left[i].port, -number));
  }
  CHECK(failure_of(std::move(sessions[0]).finish()) == error_kind::busy);
  std::vector<pollfd> entries;
  for (const auto& each : sessions)
    entries.push_back({.fd = each.file_descriptor(), .events = POLLIN, .revents = 0});
  std::vector<bool> are_done(sessions.size());
  for (std::size_t done = 0; done < sessions.size();) {
    REQUIRE(::poll(entries.data(), entries.size(), 20'000) > 0);
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      if (entries[i].revents == 0 || !must(sessions[i].poll())) continue;
      are_done[i] = true;
      entries[i].fd = -1;
      ++done;
    }
  }
  CHECK(std::ranges::all_of(are_done, [](bool each) { return each; }));
  for (std::size_t i = 0; i < count; ++i) {
    auto one = must(std::move(sessions[2 * i]).finish());
    auto two = must(std::move(sessions[2 * i + 1]).finish());
    CHECK(one.met.theirs == -static_cast<int>(i));
    CHECK(two.met.theirs == static_cast<int>(i));
    check_connection(bed, one.met.channel, two.met.channel);
    check_connection(bed, two.met.channel, one.met.channel);
  }
}

TEST_CASE("the descriptor of a meeting reports its timeout and its failure persists") {
  testbed bed;
  const meeting_place own;
  const held_port closed;
  auto alone = start_at(bed, own, "127.0.0.1", closed.text(), 1, 100ms);
  pollfd entry{.fd = alone.file_descriptor(), .events = POLLIN, .revents = 0};
  const auto deadline = clock::now() + patience;
  auto step = alone.poll();
  while (step.has_value()) {
    if (clock::now() > deadline) throw failure(__FILE__, __LINE__, "the meeting does not end");
    REQUIRE(::poll(&entry, 1, 20'000) == 1);
    step = alone.poll();
  }
  CHECK(step.error() == error_kind::timed_out);
  CHECK(failure_of(alone.poll()).message() == step.error().message());
  const auto start = [&](const char* host, const char* port) {
    return failure_of(number_session::start(own.listener, host, port,
                                            must(bed.domain.build_channel().build()), 1, patience));
  };
  CHECK(start("127.0.0.1", "none") == error_kind::invalid_input);
  CHECK(start("", "1") == error_kind::invalid_input);
}

TEST_CASE_METHOD(two_places,
                 "a meeting that was moved from or has finished is refused with a message") {
  const auto check_empty = [](number_session& empty) {
    for (const error& told : {failure_of(empty.poll()), failure_of(std::move(empty).finish()),
                              failure_of(std::move(empty).run())}) {
      CHECK(told == error_kind::invalid_input);
      CHECK(told.message().find("was moved from, or its result was already taken") !=
            std::string::npos);
    }
    CHECK(empty.file_descriptor() == -1);
  };
  auto moved = start_at(bed, left, "127.0.0.1", right.port, 1);
  number_session one = std::move(moved);
  check_empty(moved);
  auto two = start_at(bed, right, "127.0.0.1", left.port, 2);
  bool is_one_done = false;
  bool is_two_done = false;
  wait_until(
      [&] {
        is_one_done = must(one.poll());
        is_two_done = must(two.poll());
        return is_one_done && is_two_done;
      },
      "the meeting");
  CHECK(must(std::move(one).finish()).met.channel.is_connected());
  check_empty(one);
}

TEST_CASE_METHOD(two_places, "an end continues to wait for a peer after another end has left") {
  auto staying = start_at(bed, left, "127.0.0.1", right.port, 1);
  {
    auto leaving = start_at(bed, right, "127.0.0.1", left.port, 2);
    static_cast<void>(must(leaving.poll()));
    static_cast<void>(must(staying.poll()));
  }
  auto again =
      std::async(std::launch::async, [&] { return meet_at(bed, right, left.port, 3, patience); });
  auto met = must(std::move(staying).run());
  CHECK(met.met.theirs == 3);
  CHECK(must(again.get()).met.theirs == 1);
}

TEST_CASE_METHOD(two_places, "a meeting connects channels that were renewed") {
  channel one(must(bed.domain.build_channel().build()));
  channel two(must(bed.domain.build_channel().build()));
  for (int i = 0; i < 3; ++i) {
    auto other = std::async(std::launch::async, [&] {
      return meet<int>(right.listener, "127.0.0.1", left.port, two, i, patience);
    });
    CHECK(must(meet<int>(left.listener, "127.0.0.1", right.port, one, -i, patience)).met == i);
    CHECK(must(other.get()).met == -i);
    check_connection(bed, one, two);
    must(one.renew());
    must(two.renew());
  }
}
