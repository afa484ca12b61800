// SPDX-License-Identifier: Apache-2.0
/// \file
/// The protocol of an exchange, tested without a device: two correct sides that are connected
/// by a pair of sockets, and peers that send arbitrary bytes.

#include "exchange_sides.hpp"
#include <verbspp/base/detail/words.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;
using detail::exchange_core;

namespace {

struct greeting {
  std::uint32_t number;
  std::array<std::uint8_t, 4> tag;
};

}  // namespace

template <>
inline constexpr std::string_view verbspp::exchanged_name<greeting> = "greeting 1";

namespace {

using writable = remote_memory<access::remote_write>;

/// Sends these bytes to one side of an exchange, closes the other end if `closes` is true, and
/// requires that the side fails. \returns the side's error message
std::string answer_to(std::string_view bytes, bool closes = false, wait_limit limit = 30s) {
  socket_pair sockets;
  plain_side left(sockets[0], some, limit);
  REQUIRE(::send(sockets[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes));
  if (closes) sockets.close(1);
  while (!left.advance()) REQUIRE(left.core().wait().has_value());
  return left.message();
}

/// Reads up to 4096 of the bytes that have arrived at a socket.
std::vector<std::byte> drain(int socket) {
  std::vector<std::byte> bytes(4096);
  const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("each side of an exchange gets the other side's endpoint and values") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s, {}, 100);
  plain_side right(sockets[1], {8, "right", readable(0x2000, 128, remote_key(std::uint32_t{6}))},
                   10s, {}, 200);
  run(left, right);
  REQUIRE(left.is_done());
  REQUIRE(right.is_done());
  CHECK(left.remote_number() == 200);
  CHECK(right.remote_number() == 100);
  CHECK(right.theirs() == some);
  CHECK(std::get<1>(*left.theirs()) == "right");
  CHECK(std::get<2>(*left.theirs()).length() == 128);
}

TEST_CASE("values of many kinds can be exchanged") {
  enum class color : std::uint8_t { red = 3 };
  using word = remote_memory<access::remote_atomic | access::remote_read>;
  using object = remote_object<greeting, access::remote_write>;
  using array = remote_array<std::uint64_t, access::remote_read>;
  using all = std::tuple<std::int8_t, std::int64_t, bool, float, double, color, greeting,
                         bounded_bytes<4>, object, array, remote_word>;
  const auto bytes = std::to_array({std::byte{1}, std::byte{2}});
  const all sent{std::int8_t{-3},
                 std::int64_t{-1} << 40,
                 true,
                 0.5F,
                 -2.25,
                 color::red,
                 greeting{9, {1, 2, 3, 4}},
                 bounded_bytes<4>::from(bytes).value(),
                 object::at(writable(0x100, 8, remote_key(std::uint32_t{1}))).value(),
                 array::of(readable(0x200, 32, remote_key(std::uint32_t{2}))).value(),
                 remote_word::at(word(0x300, 16, remote_key(std::uint32_t{3})), 8).value()};
  socket_pair sockets;
  side<std::tuple<>, all> left(sockets[0], sent, 10s);
  side<all, std::tuple<>> right(sockets[1], {}, 10s);
  run(left, right);
  REQUIRE(right.is_done());
  const all& got = *right.theirs();
  CHECK(std::get<0>(got) == -3);
  CHECK(std::get<1>(got) == std::int64_t{-1} << 40);
  CHECK(std::get<2>(got));
  CHECK(std::get<3>(got) == 0.5F);
  CHECK(std::get<4>(got) == -2.25);
  CHECK(std::get<5>(got) == color::red);
  CHECK(std::get<6>(got).tag == std::array<std::uint8_t, 4>{1, 2, 3, 4});
  CHECK(std::get<7>(got) == std::get<7>(sent));
  CHECK(std::get<8>(got) == std::get<8>(sent));
  CHECK(std::get<9>(got) == std::get<9>(sent));
  CHECK(std::get<10>(got) == std::get<10>(sent));
}

TEST_CASE("a single value needs no tuple") {
  socket_pair sockets;
  side<std::uint16_t, bounded_text<8>> left(sockets[0], "hello", 10s);
  side<bounded_text<8>, std::uint16_t> right(sockets[1], 77, 10s);
  run(left, right);
  CHECK(left.theirs() == std::uint16_t{77});
  CHECK(right.theirs() == bounded_text<8>("hello"));
}

TEST_CASE("text that is too long is refused when it is created") {
  CHECK(bounded_text<4>::from("four").value() == "four");
  CHECK(bounded_text<4>::from("fives").error() == error_kind::invalid_input);
  CHECK(bounded_bytes<1>::from(std::array<std::byte, 2>()).error() == error_kind::invalid_input);
  STATIC_REQUIRE(!std::is_constructible_v<bounded_text<4>, const char(&)[6]>);
}

TEST_CASE("a value with a wrong length is refused and both ends report it") {
  socket_pair sockets;
  using bounded = bounded_text<4>;
  side<std::tuple<>, bounded> liar(sockets[0], "four", 10s);
  side<bounded, std::tuple<>> honest(sockets[1], {}, 10s);
  // The liar announces the correct bound for the value, but a wrong length.
  SECTION("a length beyond the end of the value") { liar.core().values()[1] = std::byte{5}; }
  SECTION("bytes after the value") { liar.core().values()[1] = std::byte{3}; }
  run(liar, honest);
  CHECK(honest.failure() == error_kind::invalid_input);
  CHECK(!honest.theirs());
  CHECK(liar.failure() == error_kind::not_connected);
  CHECK(liar.message().find("the peer refused, with the message") != std::string::npos);
}

TEST_CASE("an exchange reads no bytes after its own") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  plain_side right(sockets[1], some, 10s);
  while (!left.advance()) static_cast<void>(right.advance());
  REQUIRE(left.is_done());
  // The end that finishes first already sends data in the program's own protocol.
  REQUIRE(::send(sockets[0], "next", 4, 0) == 4);
  while (!right.advance()) {
  }
  REQUIRE(right.is_done());
  CHECK(text_of(drain(sockets[1])) == "next");
  CHECK(drain(sockets[0]).empty());
}

TEST_CASE("an exchange over the socket of an earlier exchange succeeds") {
  socket_pair sockets;
  for (int i = 0; i < 2; ++i) {
    plain_side left(sockets[0], some, 10s);
    plain_side right(sockets[1], some, 10s);
    run(left, right);
    CHECK(left.is_done());
    CHECK(right.is_done());
  }
}

TEST_CASE("another application or version is refused at both ends") {
  socket_pair sockets;
  SECTION("another application") {
    plain_side left(sockets[0], some, 10s, {.application = "store"});
    plain_side right(sockets[1], some, 10s, {.application = "queue"});
    run(left, right);
    CHECK(left.failure() == error_kind::mismatch);
    CHECK(left.message().find("is 'store', but the peer's is 'queue'") != std::string::npos);
    CHECK(right.message().find("is 'queue', but the peer's is 'store'") != std::string::npos);
  }
  SECTION("another version") {
    plain_side left(sockets[0], some, 10s, {.application = "store", .version = 1});
    plain_side right(sockets[1], some, 10s, {.application = "store", .version = 2});
    run(left, right);
    CHECK(left.message().find("version of the application differs: local 1, remote 2") !=
          std::string::npos);
    CHECK(right.failure() == error_kind::mismatch);
  }
}

TEST_CASE("a peer that sends values of other types is notified of the difference") {
  socket_pair sockets;
  const auto both = [&](auto& left, auto& right) {
    run(left, right);
    CHECK(left.failure() == error_kind::mismatch);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(right.message().find("the peer refused, with the message") != std::string::npos);
    // One end detects the difference and reports it to the other.
    const std::string found = left.message().substr(left.message().find("value "));
    CHECK(right.message().find(found) != std::string::npos);
    return found;
  };
  SECTION("another type") {
    side<std::uint32_t, std::uint32_t> left(sockets[0], 1, 10s);
    side<std::uint32_t, std::uint64_t> right(sockets[1], 1, 10s);
    CHECK(both(left, right) ==
          "value 1 differs: expected an unsigned integer of 4 bytes, but the peer sends an "
          "unsigned integer of 8 bytes");
  }
  SECTION("other rights") {
    const writable memory(0x1000, 8, remote_key(std::uint32_t{1}));
    side<std::tuple<bool, readable>, bool> left(sockets[0], true, 10s);
    side<bool, std::tuple<bool, writable>> right(sockets[1], {true, memory}, 10s);
    CHECK(both(left, right) ==
          "value 2 differs: expected remote memory (read), but the peer sends remote memory "
          "(write)");
  }
  SECTION("another order") {
    side<std::tuple<bool, int>, bool> left(sockets[0], true, 10s);
    side<bool, std::tuple<int, bool>> right(sockets[1], {1, true}, 10s);
    CHECK(both(left, right).find("value 1 differs") == 0);
  }
  SECTION("too few values") {
    side<std::tuple<bool, greeting>, bool> left(sockets[0], true, 10s);
    side<bool, bool> right(sockets[1], true, 10s);
    CHECK(both(left, right).find("value 2 is missing: expected the structure 'greeting 1'") == 0);
  }
  SECTION("too many values") {
    side<std::tuple<>, bool> left(sockets[0], true, 10s);
    side<bool, bool> right(sockets[1], true, 10s);
    CHECK(both(left, right).find("value 1 is not expected") == 0);
  }
}

TEST_CASE("the failure of one side is reported to the other") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  plain_side right(sockets[1], some, 10s);
  SECTION("a side fails with an error") {
    static_cast<void>(left.advance());
    left.refuse(error::mismatch("compare endpoints", "GID type", "RoCE v1", "RoCE v2"));
    run(left, right);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(right.message().find("GID type differs: local RoCE v1, remote RoCE v2") !=
          std::string::npos);
  }
  SECTION("a side destroys its session") {
    static_cast<void>(left.advance());
    left.give_up();
    while (!right.advance()) {
    }
    CHECK(right.failure() == error_kind::not_connected);
    CHECK(right.message().find("the exchange was aborted") != std::string::npos);
  }
  // Later calls fail as well.
  CHECK(!right.core().poll().has_value());
}

TEST_CASE("the reason of a refusal is read even if the peer has closed its socket") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  plain_side right(sockets[1], some, 10s);
  static_cast<void>(left.advance());
  static_cast<void>(right.advance());
  left.refuse(error(error_kind::busy, "test", "no room"));
  sockets.close(0);
  while (!right.advance()) {
  }
  CHECK(right.failure() == error_kind::busy);
  CHECK(right.message().find("no room") != std::string::npos);
}

TEST_CASE("bytes of another protocol and malformed frames are refused") {
  const auto frame = [](char version, char type, std::uint32_t length, std::string body = {}) {
    std::string made{'v', 'x', version, type};
    for (int i = 3; i >= 0; --i) made += static_cast<char>(length >> 8 * i & 0xff);
    return made + body;
  };
  CHECK(answer_to("GET / HTTP/1.1\r\n\r\n").find("not a frame of an exchange") !=
        std::string::npos);
  CHECK(answer_to(frame(1, 1, 0)).find("format version differs: local 2, remote 1") !=
        std::string::npos);
  CHECK(answer_to(frame(2, 99, 0)).find("type of the frame: 99") != std::string::npos);
  CHECK(answer_to(frame(2, 4, 0)).find("sent the frame 'ready' instead of 'hello'") !=
        std::string::npos);
  CHECK(answer_to(frame(2, 1, 0xffffffff)).find("4294967295 is above the limit") !=
        std::string::npos);
  CHECK(answer_to(frame(2, 1, 3, "abc")).find("ends before its last field") != std::string::npos);
  CHECK(answer_to(frame(2, 6, 0)).find("length of the peer's refusal") != std::string::npos);
  CHECK(answer_to(frame(2, 6, 4, std::string("\x09\x1b[m"))).find("said: not connected: ?[m") ==
        std::string::npos);
  CHECK(answer_to(frame(2, 6, 4, std::string("\x09\x1b[m"))).find("?[m") != std::string::npos);

  std::string hello(32 + 8, '\0');
  CHECK(answer_to(frame(2, 1, 40, hello)).find("value 1 is missing") != std::string::npos);
  CHECK(answer_to(frame(2, 1, 41, hello + "x")).find("longer than its fields") !=
        std::string::npos);
  hello[34] = 17;
  CHECK(answer_to(frame(2, 1, 40, hello)).find("17 is above the limit of 16") != std::string::npos);
  hello[34] = 0;
  hello[32] = 16;
  CHECK(answer_to(frame(2, 1, 40, hello)).find("does not support") != std::string::npos);
}

TEST_CASE("the error about a peer that disconnects or is silent names the step") {
  CHECK(answer_to("", true).find("before the peer's hello arrived") != std::string::npos);
  CHECK(answer_to("vx", true).find("before the peer's hello arrived") != std::string::npos);
  CHECK(answer_to("", false, 5ms).find("the peer's hello has not arrived") != std::string::npos);
  CHECK(answer_to("vx", false, 5ms).find("hello has not arrived, or only a part of it") !=
        std::string::npos);
}

TEST_CASE("an exchange times out") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 5ms);
  while (!left.advance()) REQUIRE(left.core().wait().has_value());
  CHECK(left.failure() == error_kind::timed_out);
  // The peer was notified of the timeout.
  CHECK(text_of(drain(sockets[1])).find("timed out") != std::string_view::npos);
}

TEST_CASE("invalid arguments of an exchange are refused") {
  socket_pair sockets;
  const auto start = [](int socket, const exchange_options& options) {
    return exchange_core::create({.file_descriptor = socket, .options = options}, 1s);
  };
  CHECK(start(-1, {}).error() == error_kind::invalid_input);
  CHECK(start(sockets[0], {.application = std::string_view("\n")}).error() ==
        error_kind::invalid_input);
  const std::string longest(64, 'x');
  CHECK(start(sockets[0], {.application = longest}).has_value());
  CHECK(start(sockets[0], {.application = longest + 'x'}).error() == error_kind::invalid_input);

  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const error no_socket = start(pipe[0], {}).error();
  CHECK(no_socket == error_kind::invalid_input);
  CHECK(no_socket.native_errno() == ENOTSOCK);
  CHECK(no_socket.message().find("not a stream socket") != std::string::npos);
  const int of_datagrams = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  CHECK(start(of_datagrams, {}).error() == error_kind::invalid_input);
  ::close(of_datagrams);
  const int not_connected = ::socket(AF_INET, SOCK_STREAM, 0);
  plain_side unconnected(not_connected, some, 1s);
  CHECK(unconnected.advance());
  CHECK(unconnected.failure() == error_kind::not_connected);
  CHECK(unconnected.message().find("the socket is not connected") != std::string::npos);
  ::close(not_connected);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("a side that is connected to itself detects this") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  static_cast<void>(left.advance());
  const auto sent = drain(sockets[1]);
  REQUIRE(::send(sockets[1], sent.data(), sent.size(), 0) == std::ssize(sent));
  CHECK(left.advance());
  CHECK(left.message().find("connected to itself") != std::string::npos);
}

TEST_CASE("the text of an error is kept until many later errors have occurred") {
  socket_pair sockets;
  side<bool, bool> left(sockets[0], true, 10s);
  side<bool, int> right(sockets[1], 1, 10s);
  while (!left.advance()) static_cast<void>(right.advance());
  const error first = left.failure();
  const std::string message = first.message();
  CHECK(first.code() == std::errc::invalid_argument);
  const auto newer = [] {
    return detail::error_in_words(error_kind::mismatch, "test", "newer text").message();
  };
  for (std::size_t i = 1; i < detail::words_to_keep; ++i)
    CHECK(newer() == "test: mismatch: newer text");
  CHECK(first.message() == message);
  CHECK(newer() == "test: mismatch: newer text");
  CHECK(first.code() == std::errc::invalid_argument);
  CHECK(first.message().find("newer errors have replaced the text") != std::string::npos);
  CHECK(first.message().size() == first.format({}));
}
