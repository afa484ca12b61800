// SPDX-License-Identifier: Apache-2.0
#include "../held_port.hpp"
#include "../stopping.hpp"
#include "worlds.hpp"
#include <verbspp/exchange/tcp.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

[[nodiscard]] std::string place_at(const held_port& port) { return "localhost:" + port.text(); }
[[nodiscard]] tcp_launch launch(std::uint32_t rank, std::uint32_t size, const std::string& place) {
  return {.rank = rank, .size = size, .meeting_point = place};
}
[[nodiscard]] error why_not(const tcp_launch& launch, const wait_limit& limit = patience) {
  return failure_of(tcp_bootstrap::join(launch, limit));
}

/// Checks that a bootstrap that was moved from refuses all calls.
template <class Bootstrap>
void check_moved_from(Bootstrap& refusing) {
  CHECK(refusing.size() == 0);
  CHECK(failure_of(refusing.put("key", {})) == error_kind::invalid_input);
  CHECK(error(failure_of(refusing.fence(patience))) == error_kind::invalid_input);
  CHECK(failure_of(refusing.get(0, "key", {}, patience)) == error_kind::invalid_input);
}

using socket_name = int (*)(int, sockaddr*, socklen_t*);

/// Returns the socket's own port if `name` is `getsockname`, or its peer's port if it is
/// `getpeername`. Returns 0 if there is no such port.
[[nodiscard]] in_port_t port_by(socket_name name, int descriptor) {
  sockaddr_storage end{};
  socklen_t size = sizeof end;
  if (name(descriptor, reinterpret_cast<sockaddr*>(&end), &size) != 0) return 0;
  in_port_t port = 0;
  if (end.ss_family == AF_INET) port = reinterpret_cast<const sockaddr_in&>(end).sin_port;
  if (end.ss_family == AF_INET6) port = reinterpret_cast<const sockaddr_in6&>(end).sin6_port;
  return ntohs(port);
}
/// Returns the descriptor for the other end of the connection, which is also in this process.
[[nodiscard]] int other_end_of(const tcp_socket& of) {
  const in_port_t here = port_by(::getsockname, of.descriptor());
  const in_port_t there = port_by(::getpeername, of.descriptor());
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  for (int each = 0; each < static_cast<int>(std::min<rlim_t>(descriptors.rlim_cur, 1U << 16U));
       ++each)
    if (port_by(::getsockname, each) == there && port_by(::getpeername, each) == here) return each;
  throw failure(__FILE__, __LINE__, "the other end is not in this process");
}

/// Writes zeros until the socket accepts no more. \returns the number of bytes that were written
[[nodiscard]] std::size_t fill(int descriptor) {
  const std::array<char, 4096> zeros{};
  std::size_t filled = 0;
  const auto has_filled = [&] {
    // Even if no bytes can be sent now, the other end may announce more room later. But once the
    // kernel has probed for room without success, the other end will not announce any. The kernel
    // is asked first, because room may appear between a send and this question.
    tcp_info told{};
    socklen_t size = sizeof told;
    ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &told, &size);
    bool is_full = true;
    for (ssize_t sent = 0; sent >= 0;) {
      // Single bytes fill the remaining room.
      for (const std::size_t part : {zeros.size(), std::size_t{1}}) {
        sent = ::send(descriptor, zeros.data(), part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) continue;
        filled += static_cast<std::size_t>(sent);
        is_full = false;
        break;
      }
    }
    return is_full && told.tcpi_backoff != 0;
  };
  wait_until(has_filled, "the other end to accept no more data");
  return filled;
}
/// Receives `size` bytes, or fewer if the connection ends first.
[[nodiscard]] std::vector<std::uint8_t> receive(const tcp_socket& from, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::size_t got = 0;
  wait_until(
      [&] {
        const auto now =
            ::recv(from.descriptor(), bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
        if (now > 0) got += static_cast<std::size_t>(now);
        return got == size || now == 0 || (now < 0 && errno != EAGAIN);
      },
      "the bytes that the rank sends");
  bytes.resize(got);
  return bytes;
}

}  // namespace

TEST_CASE("ranks meet by TCP in any order", "[not-in-vm]") {
  const testbed bed;
  const held_port port;
  const std::string place = place_at(port);
  constexpr std::uint32_t count = 4;
  on_threads(count, [&](std::uint32_t rank) {
    // steady: the pause lets the other ranks try to connect before rank 0 opens the meeting point;
    // the test also passes if they try later
    if (rank == 0) std::this_thread::sleep_for(100ms);
    auto launched = must(tcp_bootstrap::join(launch(rank, count, place), patience));
    require(launched.rank() == rank && launched.size() == count, "the rank or the size is wrong");
    auto mine = must(world::join(std::move(launched), bed.domain.build_channel(), patience));
    require(must(mine.exchange(rank, patience)) == std::vector<std::uint32_t>{0, 1, 2, 3},
            "the ranks are not in order");
    require(mine.barrier(patience).has_value(), "the barrier failed");
  });
}

TEST_CASE("after a fence, ranks get the values of other ranks unchanged") {
  const held_port port;
  const std::string place = place_at(port);
  on_threads(3, [&](std::uint32_t rank) {
    auto mine = must(tcp_bootstrap::join(launch(rank, 3, place), patience));
    const std::vector<std::byte> large = pattern(65'536, rank);
    must(mine.put("large", large));
    must(mine.put("empty", {}));
    must(mine.fence(patience));
    for (std::uint32_t other = 0; other < 3; ++other) {
      std::vector<std::byte> got(65'536);
      require(must(mine.get(other, "large", got, patience)) == 65'536, "the size is wrong");
      require(got == pattern(65'536, other), "the bytes are wrong");
      require(must(mine.get(other, "empty", {}, patience)) == 0, "the empty value is not empty");
      require(failure_of(mine.get(other, "small", got, patience)) == error_kind::not_found,
              "a value that no rank has put was found");
      require(failure_of(mine.get(other, "large", std::span(got).first(9), patience)) ==
                  error_kind::invalid_input,
              "memory that is too small for the value was not refused");
    }
    require(failure_of(mine.get(77, "large", {}, patience)) == error_kind::not_found,
            "a value of a rank that does not exist was found");
    require(failure_of(mine.put(std::string(65, 'k'), {})) == error_kind::invalid_input,
            "a key that is too long was not refused");
    require(
        failure_of(mine.get(0, std::string(65, 'k'), {}, patience)) == error_kind::invalid_input,
        "a value with a key that is too long was requested");
    require(failure_of(mine.put("k", std::vector<std::byte>(65'537))) == error_kind::invalid_input,
            "a value that is too long was not refused");
    must(mine.fence(patience));
  });
}

TEST_CASE("the error for a failed fence names missing ranks and ranks that have left") {
  const held_port port;
  const std::string place = place_at(port);
  std::atomic<bool> is_told{false};
  std::atomic<int> done{0};
  on_threads(4, [&](std::uint32_t rank) {
    auto mine = must(tcp_bootstrap::join(launch(rank, 4, place), patience));
    must(mine.fence(patience));
    if (rank == 0) {
      const auto missing = failure_of(mine.fence(100ms));
      require(missing.peer() == 1U && missing.failed() == 3,
              "the three missing ranks are not reported");
      require(static_cast<error>(missing).kind() == error_kind::timed_out,
              "the error kind is wrong");
      is_told = true;
    } else {
      // Each late rank first enters the fence that rank 0 has aborted, and then the next one.
      wait_until([&] { return is_told.load(); }, "rank 0 to be notified");
      must(mine.fence(patience));
    }
    must(mine.fence(patience));
    if (rank == 3) return;
    const auto left = failure_of(mine.fence(patience));
    require(left.peer() == 3U, "rank 3 is not blamed");
    require(static_cast<error>(left).kind() == error_kind::not_connected,
            "the error kind is wrong");
    ++done;
    wait_until([&] { return done == 3; }, "all to be notified");
  });
}

TEST_CASE("a stop request wakes a rank that waits at a fence") {
  const auto is_cancelled = [](auto& mine, const wait_limit& until) {
    const error stopped = failure_of(mine.fence(until));
    return stopped == error_kind::cancelled;
  };
  std::vector<local_bootstrap> local = local_bootstrap::create(2);
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return is_cancelled(local[0], until);
        }).is_as_promised());
  const held_port port;
  const std::string place = place_at(port);
  auto first = must(tcp_bootstrap::join(launch(0, 2, place), patience));
  auto second = must(tcp_bootstrap::join(launch(1, 2, place), patience));
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          return is_cancelled(second, until);
        }).is_as_promised());
}

TEST_CASE("a client that is not a rank of the world is refused and does not disturb ranks") {
  const held_port port;
  const std::string place = place_at(port);
  std::optional<tcp_bootstrap> first(must(tcp_bootstrap::join(launch(0, 3, place), patience)));
  auto second = must(tcp_bootstrap::join(launch(1, 3, place), patience));

  CHECK(why_not(launch(1, 3, place)) == error_kind::busy);
  CHECK(why_not(launch(1, 3, place)).message().find("rank 1") != std::string::npos);
  CHECK(why_not(launch(0, 3, place)) == error_kind::busy);  // the port is in use
  CHECK(why_not(launch(2, 4, place)) == error_kind::mismatch);
  tcp_launch named = launch(2, 3, place);
  named.name = "another";
  CHECK(why_not(named) == error_kind::mismatch);

  // There are three kinds of strangers: one is silent, one uses a different protocol, and one sends
  // too much.
  const auto silent = must(tcp_socket::connect("localhost", port.text(), patience));
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\1')}) {
    const auto stranger = must(tcp_socket::connect("localhost", port.text(), patience));
    static_cast<void>(::send(stranger.descriptor(), words.data(), words.size(), MSG_NOSIGNAL));
    std::array<char, 16> answer{};
    wait_until(
        [&] {
          const auto got =
              ::recv(stranger.descriptor(), answer.data(), answer.size(), MSG_DONTWAIT);
          return got == 0 || (got < 0 && errno != EAGAIN);
        },
        "the stranger to be disconnected");
  }

  auto third = must(tcp_bootstrap::join(launch(2, 3, place), patience));
  on_threads(3, [&](std::uint32_t rank) {
    must((rank == 0 ? *first : rank == 1 ? second : third).fence(patience));
  });
}

TEST_CASE("all ranks of a large world may connect before any of them has sent its rank",
          "[not-in-vm]") {
  const held_port port;
  const std::string place = place_at(port);
  auto first = must(tcp_bootstrap::join(launch(0, 400, place), patience));
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 300; ++i)
    silent.push_back(must(tcp_socket::connect("localhost", port.text(), patience)));
  const auto second = must(tcp_bootstrap::join(launch(1, 400, place), patience));
  CHECK(second.rank() == 1);
}

TEST_CASE("silent strangers do not keep ranks from connecting to the meeting point",
          "[not-in-vm]") {
  const held_port port;
  const std::string place = place_at(port);
  auto first = must(tcp_bootstrap::join(launch(0, 2, place), patience));
  // Opens more connections than a meeting point accepts.
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 300; ++i)
    silent.push_back(must(tcp_socket::connect("localhost", port.text(), patience)));
  const auto second = must(tcp_bootstrap::join(launch(1, 2, place), patience));
  CHECK(second.rank() == 1);
  // The first stranger was refused to make room for later connections.
  CHECK(receive(silent.front(), 64) == std::vector<std::uint8_t>{3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a rank whose connection strangers displaced connects to the meeting point again",
          "[not-in-vm]") {
  const auto listener = must(tcp_listener::open("0"));
  const std::string place = "localhost:" + std::to_string(listener.port());
  std::optional<tcp_bootstrap> joined;
  on_threads(2, [&](std::uint32_t thread) {
    if (thread == 0) {
      joined.emplace(must(tcp_bootstrap::join(launch(1, 2, place), patience)));
      return;
    }
    for (const std::uint8_t answer : {3, 2}) {
      const auto visitor = must(listener.accept(patience));
      require(receive(visitor, 23).size() == 23, "the rank did not introduce itself");
      const std::array<std::uint8_t, 11> refused_or_welcome{answer, 0, 0, 0, 5};
      ::send(visitor.descriptor(), refused_or_welcome.data(), refused_or_welcome.size(),
             MSG_NOSIGNAL);
    }
  });
  CHECK(joined->rank() == 1);
}

TEST_CASE("a rank with another version of the protocol is refused") {
  const held_port port;
  const std::string place = place_at(port);
  const auto first = must(tcp_bootstrap::join(launch(0, 2, place), patience));
  // The first frame that rank 1 would send in a later version of the protocol. It begins with the
  // type, a number, and the lengths of key and value. After these come the magic number, the
  // version and the number of ranks.
  const std::array<std::uint8_t, 23> hello{1,    0,    0,    0, 1, 0, 0, 0, 0, 0, 12, 0x76,
                                           0x78, 0x72, 0x77, 0, 0, 0, 2, 0, 0, 0, 2};
  const auto later = must(tcp_socket::connect("localhost", port.text(), patience));
  REQUIRE(::send(later.descriptor(), hello.data(), hello.size(), MSG_NOSIGNAL) == 23);
  // The rank was refused because of its version.
  CHECK(receive(later, 64) == std::vector<std::uint8_t>{3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0});
  const auto second = must(tcp_bootstrap::join(launch(1, 2, place), patience));
  CHECK(second.rank() == 1);
}

TEST_CASE("a meeting point of another version is detected, and joining at another service fails",
          "[not-in-vm]") {
  // The listener is not a meeting point. It accepts the connection, and answers either with the
  // refusal that a meeting point of another version sends, or with bytes that are not part of the
  // protocol.
  const auto why = [](std::vector<std::uint8_t> says, std::chrono::milliseconds limit) {
    const auto listener = must(tcp_listener::open("0"));
    const std::string place = "localhost:" + std::to_string(listener.port());
    error told;
    on_threads(2, [&](std::uint32_t thread) {
      if (thread == 0) {
        told = why_not(launch(1, 2, place), limit);
        return;
      }
      const auto visitor = must(listener.accept(patience));
      static_cast<void>(::send(visitor.descriptor(), says.data(), says.size(), MSG_NOSIGNAL));
      std::array<char, 64> hello{};
      while (::recv(visitor.descriptor(), hello.data(), hello.size(), 0) > 0) {
      }
    });
    return told;
  };
  const error version = why({3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0}, patience);
  CHECK(version == error_kind::mismatch);
  CHECK(version.message().find("version") != std::string::npos);
  CHECK(why({'H', 'T', 'T', 'P', '/', '1', '.', '1', ' ', '4', '0', '0'}, 2s) !=
        error_kind::invalid_input);
}

TEST_CASE("a fence that was not sent before its limit is sent with the next one") {
  // This meeting point reads no data for a while.
  const auto listener = must(tcp_listener::open("0"));
  const std::string place = "localhost:" + std::to_string(listener.port());
  std::optional<tcp_bootstrap> joined;
  std::optional<tcp_socket> visitor;
  on_threads(2, [&](std::uint32_t thread) {
    if (thread == 0) {
      joined.emplace(must(tcp_bootstrap::join(launch(1, 2, place), patience)));
      return;
    }
    visitor.emplace(must(listener.accept(patience)));
    require(receive(*visitor, 23).size() == 23, "the rank did not introduce itself");
    const std::array<std::uint8_t, 11> welcome{2};
    ::send(visitor->descriptor(), welcome.data(), welcome.size(), MSG_NOSIGNAL);
  });
  const std::size_t filled = fill(other_end_of(*visitor));
  CHECK(static_cast<error>(failure_of(joined->fence(50ms))) == error_kind::timed_out);
  CHECK(receive(*visitor, filled).size() == filled);
  // This message says that all ranks have reached both fences.
  const std::array<std::uint8_t, 11> released{6, 0, 0, 0, 2};
  ::send(visitor->descriptor(), released.data(), released.size(), MSG_NOSIGNAL);
  CHECK(joined->fence(patience));
  std::vector<std::uint8_t> fences(22);
  fences[0] = fences[11] = 5;
  joined.reset();
  CHECK(receive(*visitor, 23) == fences);
}

TEST_CASE("a fence that all ranks reach just after its limit blames no rank") {
  // This meeting point releases the rank after the rank has asked which ranks are missing.
  const auto listener = must(tcp_listener::open("0"));
  const std::string place = "localhost:" + std::to_string(listener.port());
  const auto send = [](const tcp_socket& to, const std::vector<std::uint8_t>& frame) {
    ::send(to.descriptor(), frame.data(), frame.size(), MSG_NOSIGNAL);
  };
  on_threads(2, [&](std::uint32_t thread) {
    if (thread == 0) {
      auto joined = must(tcp_bootstrap::join(launch(1, 2, place), patience));
      const auto fence = joined.fence(10ms);
      // The answer may arrive too late, but no rank may be blamed.
      if (!fence.has_value()) require(!fence.error().peer(), fence.error().message().c_str());
      return;
    }
    const auto visitor = must(listener.accept(patience));
    require(receive(visitor, 23).size() == 23, "the rank did not introduce itself");
    send(visitor, std::vector<std::uint8_t>{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    // The fence and the question.
    require(receive(visitor, 22).size() == 22, "the rank did not ask");
    send(visitor, {11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0});
    send(visitor, {6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0});
  });
}

TEST_CASE("invalid launch parameters are refused with an explanation") {
  CHECK(why_not(launch(0, 0, "localhost:1")) == error_kind::invalid_input);
  CHECK(why_not(launch(3, 3, "localhost:1")) == error_kind::invalid_input);
  for (const char* place : {"", ":", "host", "host:", ":1", "::1:5", "a:b:c"})
    CHECK(why_not(launch(1, 2, place)) == error_kind::invalid_input);
  tcp_launch long_name = launch(1, 2, "localhost:1");
  const std::string name(65, 'n');
  long_name.name = name;
  CHECK(why_not(long_name) == error_kind::invalid_input);
  const tcp_listener other = must(tcp_listener::open("0"));
  const error taken = why_not(launch(0, 2, "localhost:" + std::to_string(other.port())));
  CHECK(taken == error_kind::busy);
  CHECK(taken.message().find("was rank 0 started twice") != std::string::npos);
  // No meeting point listens on this port.
  const held_port port;
  std::string told;
  // On a busy machine, the first attempt to connect may last longer than a short limit.
  for (auto limit = 50ms; limit < 10s && told.find("check that rank 0 runs") == std::string::npos;
       limit *= 2) {
    const error late = why_not(launch(1, 2, place_at(port)), limit);
    CHECK(late == error_kind::timed_out);
    told = late.message();
  }
  INFO(told);
  CHECK(told.find("check that rank 0 runs") != std::string::npos);

  const auto from_environment = [] { return failure_of(tcp_bootstrap::from_environment(50ms)); };
  for (const char* each : {"VERBSPP_RANK", "VERBSPP_WORLD_SIZE", "VERBSPP_MEETING_POINT"})
    ::unsetenv(each);
  CHECK(from_environment() == error_kind::not_found);
  CHECK(from_environment().message().find("VERBSPP_WORLD_SIZE") != std::string::npos);
  ::setenv("VERBSPP_WORLD_SIZE", "two", 1);
  CHECK(from_environment() == error_kind::invalid_input);
  ::setenv("VERBSPP_WORLD_SIZE", "2", 1);
  ::setenv("VERBSPP_RANK", "-1", 1);
  CHECK(from_environment() == error_kind::invalid_input);
  CHECK(from_environment().message().find("VERBSPP_RANK") != std::string::npos);
  ::setenv("VERBSPP_RANK", "1", 1);
  CHECK(from_environment() == error_kind::not_found);
  CHECK(from_environment().message().find("VERBSPP_MEETING_POINT") != std::string::npos);
  ::setenv("VERBSPP_MEETING_POINT", "nowhere", 1);
  CHECK(from_environment() == error_kind::invalid_input);
}

TEST_CASE("a process that was not started as a rank gets an error that says so") {
  for (const char* each : {"VERBSPP_RANK", "VERBSPP_WORLD_SIZE", "VERBSPP_MEETING_POINT",
                           "PMIX_RANK", "PMIX_NAMESPACE"})
    ::unsetenv(each);
  CHECK_FALSE(pmix_bootstrap::is_launched());
  const error no_launcher = failure_of(pmix_bootstrap::open());
  CHECK(is_one_of(no_launcher.kind(), {error_kind::not_found, error_kind::not_supported}));
  CHECK(failure_of(find_bootstrap(50ms)) == error_kind::not_found);

  ::setenv("VERBSPP_RANK", "0", 1);
  CHECK(failure_of(find_bootstrap(50ms)).message().find("VERBSPP_WORLD_SIZE") != std::string::npos);
  ::setenv("VERBSPP_WORLD_SIZE", "1", 1);
  const held_port port;
  const std::string place = place_at(port);
  ::setenv("VERBSPP_MEETING_POINT", place.c_str(), 1);
  auto found = must(find_bootstrap(patience));
  CHECK(found.rank() == 0);
  CHECK(found.size() == 1);
  must(found.fence(patience));
}

TEST_CASE("a bootstrap that was moved from refuses all calls") {
  auto of_threads = std::move(local_bootstrap::create(1)[0]);
  const auto taken = std::move(of_threads);
  check_moved_from(of_threads);
  const held_port port;
  auto of_processes = must(tcp_bootstrap::join(launch(0, 1, place_at(port)), patience));
  const auto taken_too = std::move(of_processes);
  check_moved_from(of_processes);
}
