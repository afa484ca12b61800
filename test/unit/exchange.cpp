// SPDX-License-Identifier: Apache-2.0
/// \file
/// The protocol of an exchange, without a device: both sides over a pair of sockets, and whatever a
/// network or a peer may do in between.

#include "../catch.hpp"
#include "../socket_pair.hpp"
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace std::chrono_literals;
using detail::exchange_core;
using detail::exchange_step;
using detail::exchanged_values;
using test::socket_pair;

namespace {

struct greeting {
  std::uint32_t number;
  std::array<std::uint8_t, 4> tag;
};

}  // namespace

template <>
inline constexpr std::string_view verbspp::exchanged_name<greeting> = "greeting 1";

namespace {

using readable = remote_memory<access::remote_read>;
using writable = remote_memory<access::remote_write>;
using values = std::tuple<std::uint32_t, bounded_text<16>, readable>;

const values some{7, "left", readable(0x1000, 64, remote_key(std::uint32_t{5}))};

struct shared_stop {
  const bool* requested;
  [[nodiscard]] bool stop_requested() const noexcept { return *requested; }
};

endpoint some_endpoint(std::uint32_t number) {
  endpoint end;
  end.number = queue_pair_number::from(number).value();
  end.link_layer = link_layer::ethernet;
  end.gid_type = gid_type::roce_v2;
  end.address.bytes = {0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  end.mtu = path_mtu::from_code(3).value();
  return end;
}

/// One side, whose connecting is nothing but to say so.
template <class Theirs, class Mine>
class side {
 public:
  /// \param party of two equals, its number; 0 if they are none
  side(int socket, const Mine& mine, const wait_limit& limit, const exchange_options& options = {},
       std::uint32_t number = 100, unsigned party = 0)
      : core_(exchange_core::create({.file_descriptor = socket,
                                     .mine = exchanged_values<Mine>::description,
                                     .theirs = exchanged_values<Theirs>::description,
                                     .largest_mine = exchanged_values<Mine>::largest,
                                     .largest_theirs = exchanged_values<Theirs>::largest,
                                     .options = options,
                                     .is_of_equals = party != 0,
                                     .party = {std::byte(party)}},
                                    limit)
                  .value()) {
    detail::field_writer out(core_->values());
    exchanged_values<Mine>::write(out, mine);
    core_->set_mine(some_endpoint(number), out.size());
  }

  /// Whether it has come to its end, one way or the other.
  bool advance() {
    if (is_done_ || failure_) return true;
    const auto step = core_->advance();
    if (!step.has_value()) {
      failure_ = step.error();
    } else if (step.value() == exchange_step::greeted) {
      core_->offer();
    } else if (step.value() == exchange_step::offered) {
      detail::field_reader in(core_->theirs());
      const auto read = exchanged_values<Theirs>::read(in);
      if (read.has_value()) {
        theirs_ = read.value();
        core_->set_connected();
      } else {
        failure_ = core_->refuse(read.error());
      }
    } else {
      is_done_ = step.value() == exchange_step::done;
    }
    return is_done_ || failure_;
  }
  void refuse(const error& why) { failure_ = core_->refuse(why); }
  void give_up() { core_ = {}; }

  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] const std::optional<Theirs>& theirs() const { return theirs_; }
  [[nodiscard]] std::uint32_t remote_number() const { return core_->remote().number.value(); }
  [[nodiscard]] const error& failure() const {
    REQUIRE(failure_);
    return *failure_;
  }
  [[nodiscard]] std::string message() const { return failure().message(); }
  [[nodiscard]] exchange_core& core() { return *core_.get(); }

 private:
  detail::owned<exchange_core> core_;
  bool is_done_ = false;
  std::optional<error> failure_;
  std::optional<Theirs> theirs_;
};

using plain_side = side<values, values>;

template <class Left, class Right>
void run(Left& left, Right& right) {
  for (int i = 0; i < 1000; ++i) {
    const bool is_left_over = left.advance();
    if (right.advance() && is_left_over) return;
  }
  FAIL("the two sides wait for each other");
}

/// What a program that is none of ours sends, until the side has had enough.
std::string answer_to(std::string_view bytes, bool closes = false) {
  socket_pair sockets;
  bool is_late = false;
  plain_side left(sockets[0], some, shared_stop{&is_late});
  REQUIRE(::send(sockets[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes));
  if (closes) sockets.close(1);
  for (int i = 0; i < 100; ++i) static_cast<void>(left.advance());
  is_late = true;
  REQUIRE(left.advance());
  return left.message();
}

/// All that arrives at a socket.
std::vector<std::byte> drain(int socket) {
  std::vector<std::byte> bytes(4096);
  const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether the socket's other end is closed, and nothing is left to read.
bool is_hung_up(int socket) {
  std::byte byte{};
  ssize_t count = 0;
  while ((count = ::recv(socket, &byte, 1, MSG_DONTWAIT)) > 0) {
  }
  return count == 0 || errno == ECONNRESET;
}

}  // namespace

TEST_CASE("both sides of an exchange get the other's endpoint and values") {
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

TEST_CASE("each kind of value travels") {
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

TEST_CASE("one value needs no tuple") {
  socket_pair sockets;
  side<std::uint16_t, bounded_text<8>> left(sockets[0], "hello", 10s);
  side<bounded_text<8>, std::uint16_t> right(sockets[1], 77, 10s);
  run(left, right);
  CHECK(left.theirs() == std::uint16_t{77});
  CHECK(right.theirs() == bounded_text<8>("hello"));
}

TEST_CASE("text that is too long is refused where it is made") {
  CHECK(bounded_text<4>::from("four").value() == "four");
  CHECK(bounded_text<4>::from("fives").error() == error_kind::invalid_input);
  CHECK(bounded_bytes<1>::from(std::array<std::byte, 2>()).error() == error_kind::invalid_input);
  STATIC_REQUIRE(!std::is_constructible_v<bounded_text<4>, const char(&)[6]>);
}

TEST_CASE("a value that is longer than its bound is refused, and both are told") {
  socket_pair sockets;
  using bounded = bounded_text<4>;
  side<std::tuple<>, bounded> liar(sockets[0], "four", 10s);
  side<bounded, std::tuple<>> honest(sockets[1], {}, 10s);
  // Its length is a lie, and what it announced is the bound.
  SECTION("with bytes behind the end") { liar.core().values()[1] = std::byte{5}; }
  SECTION("with bytes that are none of it") { liar.core().values()[1] = std::byte{3}; }
  run(liar, honest);
  CHECK(honest.failure() == error_kind::invalid_input);
  CHECK(!honest.theirs());
  CHECK(liar.failure() == error_kind::not_connected);
  CHECK(liar.message().find("the peer refused, and said") != std::string::npos);
}

TEST_CASE("an exchange reads no byte behind its own") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  plain_side right(sockets[1], some, 10s);
  while (!left.advance()) static_cast<void>(right.advance());
  REQUIRE(left.is_done());
  // Whoever is done first goes on with the program's own protocol.
  REQUIRE(::send(sockets[0], "next", 4, 0) == 4);
  while (!right.advance()) {
  }
  REQUIRE(right.is_done());
  CHECK(text_of(drain(sockets[1])) == "next");
  CHECK(drain(sockets[0]).empty());
}

TEST_CASE("an exchange over the socket of an earlier one succeeds") {
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
  SECTION("application") {
    plain_side left(sockets[0], some, 10s, {.application = "store"});
    plain_side right(sockets[1], some, 10s, {.application = "queue"});
    run(left, right);
    CHECK(left.failure() == error_kind::mismatch);
    CHECK(left.message().find("is 'store', but the peer's is 'queue'") != std::string::npos);
    CHECK(right.message().find("is 'queue', but the peer's is 'store'") != std::string::npos);
  }
  SECTION("version") {
    plain_side left(sockets[0], some, 10s, {.application = "store", .version = 1});
    plain_side right(sockets[1], some, 10s, {.application = "store", .version = 2});
    run(left, right);
    CHECK(left.message().find("version of the application differs: local 1, remote 2") !=
          std::string::npos);
    CHECK(right.failure() == error_kind::mismatch);
  }
}

TEST_CASE("a peer that sends other values is told which") {
  socket_pair sockets;
  const auto both = [&](auto& left, auto& right) {
    run(left, right);
    CHECK(left.failure() == error_kind::mismatch);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(right.message().find("the peer refused, and said") != std::string::npos);
    // What the one found out, the other was told.
    const std::string found = left.message().substr(left.message().find("value "));
    CHECK(right.message().find(found) != std::string::npos);
    return found;
  };
  SECTION("of another type") {
    side<std::uint32_t, std::uint32_t> left(sockets[0], 1, 10s);
    side<std::uint32_t, std::uint64_t> right(sockets[1], 1, 10s);
    CHECK(both(left, right) ==
          "value 1 differs: expected an unsigned integer of 4 bytes, but the peer sends an "
          "unsigned integer of 8 bytes");
  }
  SECTION("with other rights") {
    const writable memory(0x1000, 8, remote_key(std::uint32_t{1}));
    side<std::tuple<bool, readable>, bool> left(sockets[0], true, 10s);
    side<bool, std::tuple<bool, writable>> right(sockets[1], {true, memory}, 10s);
    CHECK(both(left, right) ==
          "value 2 differs: expected remote memory (read), but the peer sends remote memory "
          "(write)");
  }
  SECTION("in another order") {
    side<std::tuple<bool, int>, bool> left(sockets[0], true, 10s);
    side<bool, std::tuple<int, bool>> right(sockets[1], {1, true}, 10s);
    CHECK(both(left, right).find("value 1 differs") == 0);
  }
  SECTION("too few") {
    side<std::tuple<bool, greeting>, bool> left(sockets[0], true, 10s);
    side<bool, bool> right(sockets[1], true, 10s);
    CHECK(both(left, right).find("value 2 is missing: expected the structure 'greeting 1'") == 0);
  }
  SECTION("too many") {
    side<std::tuple<>, bool> left(sockets[0], true, 10s);
    side<bool, bool> right(sockets[1], true, 10s);
    CHECK(both(left, right).find("value 1 is too many") == 0);
  }
}

TEST_CASE("why one side fails is told to the other") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  plain_side right(sockets[1], some, 10s);
  SECTION("by an error") {
    static_cast<void>(left.advance());
    left.refuse(error::mismatch("compare endpoints", "GID type", "RoCE v1", "RoCE v2"));
    run(left, right);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(right.message().find("GID type differs: local RoCE v1, remote RoCE v2") !=
          std::string::npos);
  }
  SECTION("by its end") {
    static_cast<void>(left.advance());
    left.give_up();
    while (!right.advance()) {
    }
    CHECK(right.failure() == error_kind::not_connected);
    CHECK(right.message().find("the program gave the exchange up") != std::string::npos);
  }
  // The failure stays.
  CHECK(!right.core().advance().has_value());
}

TEST_CASE("a refusal is read although the peer has closed") {
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

TEST_CASE("what is no exchange is refused") {
  const auto frame = [](char version, char type, std::uint32_t length, std::string body = {}) {
    std::string made{'v', 'x', version, type};
    for (int i = 3; i >= 0; --i) made += static_cast<char>(length >> 8 * i & 0xff);
    return made + body;
  };
  CHECK(answer_to("GET / HTTP/1.1\r\n\r\n").find("no frame of an exchange") != std::string::npos);
  CHECK(answer_to(frame(2, 1, 0)).find("format version differs: local 1, remote 2") !=
        std::string::npos);
  CHECK(answer_to(frame(1, 99, 0)).find("type of the frame: 99") != std::string::npos);
  CHECK(answer_to(frame(1, 4, 0)).find("sent the frame 'ready' where 'hello' is due") !=
        std::string::npos);
  CHECK(answer_to(frame(1, 1, 0xffffffff)).find("4294967295 is above the limit") !=
        std::string::npos);
  CHECK(answer_to(frame(1, 1, 3, "abc")).find("ends before its last field") != std::string::npos);
  CHECK(answer_to(frame(1, 6, 0)).find("length of a refusal") != std::string::npos);
  CHECK(answer_to(frame(1, 6, 4, std::string("\x09\x1b[m"))).find("said: not connected: ?[m") ==
        std::string::npos);
  CHECK(answer_to(frame(1, 6, 4, std::string("\x09\x1b[m"))).find("?[m") != std::string::npos);

  std::string hello(32 + 8, '\0');
  CHECK(answer_to(frame(1, 1, 40, hello)).find("value 1 is missing") != std::string::npos);
  CHECK(answer_to(frame(1, 1, 41, hello + "x")).find("longer than its fields") !=
        std::string::npos);
  hello[34] = 17;
  CHECK(answer_to(frame(1, 1, 40, hello)).find("17 is above the limit of 16") != std::string::npos);
  hello[34] = 0;
  hello[32] = 4;
  CHECK(answer_to(frame(1, 1, 40, hello)).find("does not know") != std::string::npos);
}

TEST_CASE("a peer that goes away or says nothing is named by the step") {
  CHECK(answer_to("", true).find("before it said what it is") != std::string::npos);
  CHECK(answer_to("vx", true).find("before it said what it is") != std::string::npos);
  CHECK(answer_to("").find("the peer said nothing") != std::string::npos);
  CHECK(answer_to("vx").find("the peer said nothing, or not all of its hello") !=
        std::string::npos);
}

TEST_CASE("an exchange ends at its limit") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 5ms);
  while (!left.advance()) REQUIRE(left.core().wait().has_value());
  CHECK(left.failure() == error_kind::timed_out);
  // The peer is told.
  CHECK(text_of(drain(sockets[1])).find("timed out") != std::string_view::npos);
}

TEST_CASE("an exchange of bad use is refused") {
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
  plain_side no_socket(pipe[0], some, 1s);
  CHECK(no_socket.advance());
  CHECK(no_socket.failure().native_errno() == ENOTSOCK);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("a side that is connected to itself finds out") {
  socket_pair sockets;
  plain_side left(sockets[0], some, 10s);
  static_cast<void>(left.advance());
  const auto sent = drain(sockets[1]);
  REQUIRE(::send(sockets[1], sent.data(), sent.size(), 0) == std::ssize(sent));
  CHECK(left.advance());
  CHECK(left.message().find("connected to itself") != std::string::npos);
}

TEST_CASE("the words of an error stay until many newer ones came") {
  socket_pair sockets;
  std::optional<error> first;
  std::string message;
  for (int i = 0; i < 65; ++i) {
    socket_pair each;
    side<bool, bool> left(each[0], true, 10s);
    side<bool, int> right(each[1], i, 10s);
    while (!left.advance()) static_cast<void>(right.advance());
    if (!first) {
      first = left.failure();
      message = first->message();
    }
    CHECK(left.message() == message);
    CHECK(left.failure().code() == std::errc::invalid_argument);
  }
  CHECK(first->message().find("made room for those of newer errors") != std::string::npos);
  CHECK(first->message().size() == first->format({}));
}

namespace {

/// What a proxy does to one direction.
enum class wrong : std::uint8_t {
  cut,      ///< it closes all connections
  reset,    ///< the same by TCP's reset, with which what is under way is lost
  damaged,  ///< the byte
  silent,   ///< hands on nothing any more, in this direction
  late,     ///< holds the byte until nothing else moves, then hands on all
};
struct fault {
  std::size_t direction;
  std::size_t at;  ///< the byte, counted from the beginning
  wrong kind;
};

struct outcome_of_proxy {
  std::array<bool, 2> succeeded{};
  std::array<bool, 2> hung_up{};
  std::array<std::size_t, 2> passed{};  ///< bytes, by direction
  std::array<std::string, 2> seen{};    ///< the bytes themselves
};

/// How the two sides of a proxy are to each other.
struct ends_of_proxy {
  exchange_options options{};
  bool are_equals = false;
};

/// Both sides with a proxy between them; when nothing moves any more, the limits pass.
outcome_of_proxy through_proxy(std::optional<fault> given, const ends_of_proxy& ends = {}) {
  const bool is_by_tcp = given && given->kind == wrong::reset;
  // What was sent may take a while there.
  const int patience = is_by_tcp ? 1000 : 3;
  const auto kind = is_by_tcp ? socket_pair::kind::tcp : socket_pair::kind::local;
  socket_pair left_sockets(kind);
  socket_pair right_sockets(kind);
  bool is_late = false;
  plain_side left(left_sockets[0], some, shared_stop{&is_late}, ends.options, 100,
                  ends.are_equals ? 2 : 0);
  plain_side right(right_sockets[0], some, shared_stop{&is_late}, ends.options, 100,
                   ends.are_equals ? 1 : 0);
  outcome_of_proxy outcome;
  bool is_cut = false;
  bool is_held = given && given->kind == wrong::late;
  const auto hand_on = [&](std::size_t direction, int from, int to) {
    std::size_t& passed = outcome.passed[direction];
    const bool is_wrong_here = given && given->direction == direction;
    const bool is_there = is_wrong_here && given->at == passed;
    if (is_cut || (is_there && (given->kind == wrong::silent || is_held))) return false;
    // Without a fault byte by byte; else up to that, as quickly as it goes.
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

/// At each byte of each direction.
template <class Check>
void at_each_byte(wrong kind, const ends_of_proxy& ends, Check check) {
  const auto whole = through_proxy({}, ends);
  REQUIRE(whole.succeeded == std::array{true, true});
  for (const std::size_t direction : {0U, 1U})
    for (std::size_t at = 0; at < whole.passed[direction]; ++at) {
      CAPTURE(direction, at);
      const auto outcome = through_proxy(fault{direction, at, kind}, ends);
      // Only the last frame leaves one of the two in the dark.
      const std::size_t last_frame = 8 + (ends.options.secret.empty() ? 0 : 16);
      check(outcome, direction, at >= whole.passed[direction] - last_frame);
    }
}

/// Of 32 bytes.
exchange_options with_secret(std::string_view secret) {
  return {.secret = std::as_bytes(std::span(secret))};
}
constexpr std::string_view secret = "a secret of thirty-two bytes ...";

/// Whether the library was built with what it takes.
bool has_secrets() {
  socket_pair sockets;
  const auto made =
      exchange_core::create({.file_descriptor = sockets[0], .options = with_secret(secret)}, 1s);
  if (made.has_error()) CHECK(made.error() == error_kind::not_supported);
  return made.has_value();
}

}  // namespace

TEST_CASE("a proxy at any byte makes both sides fail, or is found out at once") {
  ends_of_proxy ends;
  SECTION("of client and server") {}
  SECTION("of equals") { ends.are_equals = true; }
  SECTION("with a secret") {
    if (!has_secrets()) SKIP("built without libcrypto");
    ends.options = with_secret(secret);
  }
  SECTION("of equals with a secret") {
    if (!has_secrets()) SKIP("built without libcrypto");
    ends = {.options = with_secret(secret), .are_equals = true};
  }
  for (const wrong how : {wrong::cut, wrong::reset})
    at_each_byte(how, ends, [](const auto& seen, std::size_t direction, bool is_last) {
      // The receiver of that direction lacks a byte.
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
  // Without a secret any nonce, value or number may be what is meant.
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

TEST_CASE("both ends that know the secret connect, and nobody between them learns a key") {
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

TEST_CASE("who does not know the secret gets no values") {
  if (!has_secrets()) SKIP("built without libcrypto");
  socket_pair sockets;
  SECTION("another secret") {
    plain_side left(sockets[0], some, 10s, with_secret(secret));
    plain_side right(sockets[1], some, 10s, with_secret("another one, of some other bytes"));
    run(left, right);
    CHECK(left.failure() == error_kind::permission);
    CHECK(right.failure() == error_kind::permission);
    CHECK(left.message().find("different secrets") != std::string::npos);
    CHECK(!left.theirs());
    CHECK(!right.theirs());
  }
  SECTION("none") {
    plain_side left(sockets[0], some, 10s, with_secret(secret));
    plain_side right(sockets[1], some, 10s);
    run(left, right);
    CHECK(left.message().find("shared secret differs: local required, remote none") !=
          std::string::npos);
    CHECK(right.failure() == error_kind::mismatch);
    CHECK(!right.theirs());
  }
}
