// SPDX-License-Identifier: Apache-2.0
/// \file
/// Network faults between the two sides of an exchange, and the protection that a secret
/// provides.

#include "exchange_sides.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;
using detail::exchange_core;

namespace {

/// Discards the data that has arrived. Returns true if the other end of the socket has been closed.
bool is_hung_up(int socket) {
  std::byte byte{};
  ssize_t count = 0;
  while ((count = ::recv(socket, &byte, 1, MSG_DONTWAIT)) > 0) {
  }
  return count == 0 || errno == ECONNRESET;
}

/// The fault that a proxy causes in one direction when it reaches a given byte.
enum class wrong : std::uint8_t {
  cut,      ///< closes all connections
  reset,    ///< closes all connections with a TCP reset, which discards bytes in flight
  damaged,  ///< inverts the byte
  silent,   ///< forwards neither this byte nor any later byte in this direction
  late,     ///< holds the byte back until both sides are waiting, then forwards everything
};
struct fault {
  std::size_t direction;
  std::size_t at;  ///< which byte in its direction is affected, counted from 0
  wrong kind;
};

struct outcome_of_proxy {
  std::array<bool, 2> succeeded{};
  std::array<bool, 2> hung_up{};
  std::array<std::size_t, 2> passed{};  ///< the number of bytes in each direction
  std::array<std::string, 2> seen{};    ///< the forwarded bytes
};

/// Returns the options for the accepting end.
exchange_options accepting(exchange_options options) {
  options.role = exchange_role::accepting;
  return options;
}

/// The configuration of the two sides between which the proxy runs.
struct ends_of_proxy {
  exchange_options options{};
  bool are_equals = false;
};

/// Runs both sides with a proxy between them. Once neither side makes any more progress, both are
/// stopped.
outcome_of_proxy through_proxy(std::optional<fault> given, const ends_of_proxy& ends = {}) {
  const bool is_by_tcp = given && given->kind == wrong::reset;
  // With TCP, it may take a while for bytes to arrive.
  const int patience = is_by_tcp ? 1000 : 3;
  const auto kind = is_by_tcp ? socket_pair::kind::tcp : socket_pair::kind::local;
  socket_pair left_sockets(kind);
  socket_pair right_sockets(kind);
  bool is_late = false;
  plain_side left(left_sockets[0], some, shared_stop{&is_late}, ends.options, 100,
                  ends.are_equals ? 2 : 0);
  plain_side right(right_sockets[0], some, shared_stop{&is_late}, accepting(ends.options), 100,
                   ends.are_equals ? 1 : 0);
  outcome_of_proxy outcome;
  bool is_cut = false;
  bool is_held = given && given->kind == wrong::late;
  const auto hand_on = [&](std::size_t direction, int from, int to) {
    std::size_t& passed = outcome.passed[direction];
    const bool is_wrong_here = given && given->direction == direction;
    const bool is_there = is_wrong_here && given->at == passed;
    if (is_cut || (is_there && (given->kind == wrong::silent || is_held))) return false;
    // Without a fault, the proxy forwards one byte at a time. With a fault, it forwards as many
    // bytes as possible before the faulty one.
    std::array<char, 4096> bytes{};
    std::size_t most = given ? bytes.size() : 1;
    if (is_wrong_here && given->at >= passed) most = is_there ? 1 : given->at - passed;
    const ssize_t count = ::recv(from, bytes.data(), std::min(most, bytes.size()), MSG_DONTWAIT);
    if (count <= 0) return false;
    if (is_there && (given->kind == wrong::cut || is_by_tcp)) {
      is_cut = true;
      for (socket_pair* each : {&left_sockets, &right_sockets}) {
        if (is_by_tcp) each->reset(1);
        each->close(1);
      }
      return true;
    }
    if (is_there && given->kind == wrong::damaged) bytes[0] = static_cast<char>(~bytes[0]);
    const auto size = static_cast<std::size_t>(count);
    passed += size;
    outcome.seen[direction].append(bytes.data(), size);
    return ::send(to, bytes.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) == count;
  };
  int rounds = 0;
  int idle_rounds = 0;
  for (;;) {
    if (++rounds > 20000) FAIL("the two sides wait for each other");
    const bool is_left_over = left.advance();
    if (right.advance() && is_left_over) break;
    bool moved = hand_on(0, left_sockets[1], right_sockets[1]);
    moved = hand_on(1, right_sockets[1], left_sockets[1]) || moved;
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (idle_rounds <= patience) continue;
    if (std::exchange(is_held, false))
      idle_rounds = 0;
    else
      is_late = true;
  }
  outcome.succeeded = {left.is_done(), right.is_done()};
  outcome.hung_up = {is_hung_up(left_sockets[0]), is_hung_up(right_sockets[0])};
  return outcome;
}

/// Injects the fault at every byte in each direction, and checks the outcome.
template <class Check>
void at_each_byte(wrong kind, const ends_of_proxy& ends, Check check) {
  const auto whole = through_proxy({}, ends);
  REQUIRE(whole.succeeded == std::array{true, true});
  for (const std::size_t direction : {0U, 1U})
    for (std::size_t at = 0; at < whole.passed[direction]; ++at) {
      CAPTURE(direction, at);
      const auto outcome = through_proxy(fault{direction, at, kind}, ends);
      // Only if the fault is in the last frame can one side fail while the other succeeds.
      const std::size_t last_frame = 8 + (ends.options.secret.empty() ? 0 : 16);
      check(outcome, direction, at >= whole.passed[direction] - last_frame);
    }
}

/// Returns options with this secret.
exchange_options with_secret(std::string_view secret) {
  return {.secret = std::as_bytes(std::span(secret))};
}
constexpr std::string_view secret = "a secret of thirty-two bytes ...";

/// Returns true if the library was built with libcrypto, which secrets require.
bool has_secrets() {
  socket_pair sockets;
  const auto made =
      exchange_core::create({.file_descriptor = sockets[0], .options = with_secret(secret)}, 1s);
  if (made.has_error()) CHECK(made.error() == error_kind::not_supported);
  return made.has_value();
}

}  // namespace

TEST_CASE("an exchange detects a cut at any byte and tolerates delays") {
  ends_of_proxy ends;
  SECTION("client and server") {}
  SECTION("two ends with equal roles") { ends.are_equals = true; }
  SECTION("client and server with a secret") {
    if (!has_secrets()) SKIP("built without libcrypto");
    ends.options = with_secret(secret);
  }
  SECTION("two ends with equal roles and a secret") {
    if (!has_secrets()) SKIP("built without libcrypto");
    ends = {.options = with_secret(secret), .are_equals = true};
  }
  for (const wrong how : {wrong::cut, wrong::reset})
    at_each_byte(how, ends, [](const auto& seen, std::size_t direction, bool is_last) {
      // The receiver in that direction is missing a byte, so it must fail.
      CHECK(!seen.succeeded[1 - direction]);
      if (!seen.succeeded[direction]) return;
      CHECK(is_last);
      CHECK(seen.hung_up[direction]);
    });
  at_each_byte(wrong::silent, ends, [](const auto& seen, std::size_t direction, bool is_last) {
    CHECK(!seen.succeeded[1 - direction]);
    if (seen.succeeded[direction]) CHECK(is_last);
  });
  at_each_byte(wrong::late, ends,
               [](const auto& seen, std::size_t /*direction*/, bool /*is_last*/) {
                 CHECK(seen.succeeded == std::array{true, true});
               });
  const bool is_sealed = !ends.options.secret.empty();
  std::size_t all = 0;
  std::size_t found = 0;
  at_each_byte(wrong::damaged, ends, [&](const auto& seen, std::size_t direction, bool is_last) {
    ++all;
    if (!seen.succeeded[1 - direction]) ++found;
    if (!is_last) CHECK(seen.succeeded[0] == seen.succeeded[1]);
  });
  // Without a secret, it is not possible to detect changes to a nonce, a value or a number.
  CHECK(found >= (is_sealed ? all : all / 2));
}

TEST_CASE("a secret that is too short or too long is refused") {
  socket_pair sockets;
  const auto failure_with = [&](std::string_view bad) {
    return exchange_core::create({.file_descriptor = sockets[0], .options = with_secret(bad)}, 1s)
        .error();
  };
  CHECK(failure_with("fifteen bytes..") == error_kind::invalid_input);
  CHECK(failure_with(std::string(257, 'x')) == error_kind::invalid_input);
}

TEST_CASE("both ends connect if they have the secret, which hides their text and addresses") {
  if (!has_secrets()) SKIP("built without libcrypto");
  const auto plain = through_proxy({});
  CHECK(plain.succeeded == std::array{true, true});
  CHECK(plain.seen[0].find("left") != std::string::npos);
  const auto sealed = through_proxy({}, {.options = with_secret(secret)});
  CHECK(sealed.succeeded == std::array{true, true});
  CHECK(sealed.seen[0].find("left") == std::string::npos);
  const auto end = some_endpoint(100).address.bytes;
  const std::string address(end.begin(), end.end());
  CHECK(plain.seen[0].find(address) != std::string::npos);
  CHECK(sealed.seen[0].find(address) == std::string::npos);
}

TEST_CASE("two ends with a secret and the same role are refused") {
  if (!has_secrets()) SKIP("built without libcrypto");
  socket_pair sockets;
  exchange_options options = with_secret(secret);
  options.role = GENERATE(exchange_role::connecting, exchange_role::accepting);
  plain_side left(sockets[0], some, 10s, options);
  plain_side right(sockets[1], some, 10s, options);
  run(left, right);
  CHECK(left.failure() == error_kind::mismatch);
  CHECK(left.message().find("exchange_role::accepting") != std::string::npos);
  CHECK(right.failure() == error_kind::mismatch);
}

TEST_CASE("the roles do not matter without a secret") {
  socket_pair sockets;
  exchange_options options;
  options.role = GENERATE(exchange_role::connecting, exchange_role::accepting);
  plain_side left(sockets[0], some, 10s, options);
  plain_side right(sockets[1], some, 10s, options);
  run(left, right);
  CHECK(left.is_done());
  CHECK(right.is_done());
}

TEST_CASE("an end without the secret gets no values") {
  if (!has_secrets()) SKIP("built without libcrypto");
  socket_pair sockets;
  SECTION("another secret") {
    plain_side left(sockets[0], some, 10s, with_secret(secret));
    plain_side right(sockets[1], some, 10s,
                     accepting(with_secret("a secret with entirely other bytes")));
    run(left, right);
    CHECK(left.failure() == error_kind::permission);
    CHECK(right.failure() == error_kind::permission);
    CHECK(left.message().find("different secrets") != std::string::npos);
    CHECK(!left.theirs());
    CHECK(!right.theirs());
  }
  SECTION("no secret") {
    plain_side left(sockets[0], some, 10s, with_secret(secret));
    plain_side right(sockets[1], some, 10s);
    run(left, right);
    CHECK(left.message().find("shared secret differs: local required, remote none") !=
          std::string::npos);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(!right.theirs());
  }
}
