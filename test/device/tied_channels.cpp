// SPDX-License-Identifier: Apache-2.0
/// \file
/// Channels that are tied to the socket over which they were connected: they keep a duplicate of
/// it. These tests check how a peer detects that the other end was closed or destroyed.
#include "../eager.hpp"
#include "../socket_pair.hpp"
#include "channels.hpp"
#include "transports.hpp"
#include <verbspp/core/detail/tied_socket.hpp>
#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

constexpr exchange_options loose{.ties_socket = false};

struct tied_pair {
  channel left{};
  channel right{};
};

/// Connects two channels by running an exchange over the sockets.
[[nodiscard]] tied_pair exchange_channels(const testbed& bed, const socket_pair& sockets,
                                          wait_mode mode = wait_mode::spin(),
                                          const exchange_options& left = {},
                                          const exchange_options& right = {}) {
  const auto connect = [&](std::size_t end, const exchange_options& options) {
    auto prepared = must(bed.domain.build_channel().waiting(mode).build());
    return must(exchange(sockets[end], std::move(prepared), patience, options)).channel;
  };
  auto other = std::async(std::launch::async, [&] { return connect(1, right); });
  channel made = connect(0, left);
  return {std::move(made), other.get()};
}

/// Checks that a receive ends without a message because the peer's channel was closed.
void check_told(const testbed& bed, channel& alone) {
  buffer<> memory(bed.domain, 8);
  const auto ended = alone.receive({.elements = memory.scatter()}, patience);
  CHECK(!ended.has_value());
  REQUIRE(alone.failure());
  CHECK(alone.failure()->root() == error_kind::cancelled);
}

void check_works(const testbed& bed, channel& sender, channel& receiver) {
  buffer<> memory(bed.domain, 8);
  auto arriving = must(receiver.post_receive({.elements = memory.scatter()}));
  must(sender.send({.elements = memory.gather()}, patience));
  must(std::move(arriving).wait(patience));
}

[[nodiscard]] bool is_hung_up(int socket) {
  pollfd entry{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// Counts how many of this process's descriptors refer to the socket.
[[nodiscard]] int descriptors_of(int socket) {
  struct stat wanted{};
  REQUIRE(::fstat(socket, &wanted) == 0);
  int count = 0;
  for (int each = 0; each < 1024; ++each) {
    struct stat seen{};
    if (::fstat(each, &seen) == 0 && seen.st_ino == wanted.st_ino && seen.st_dev == wanted.st_dev)
      ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a socket that cannot be duplicated is reported with the errno of the kernel") {
  const socket_pair sockets;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none_left{.rlim_cur = 1, .rlim_max = before.rlim_max};  // descriptor 0 is in use
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none_left) == 0);
  const auto made = detail::tied_socket::duplicate_of(sockets[0]);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(made.has_error());
  CHECK(made.error().native_errno() == EMFILE);
}

TEST_CASE("closing a channel notifies the peer even if the program keeps the socket open") {
  const testbed bed;
  const wait_mode mode = GENERATE(wait_mode::spin(), wait_mode::sleep());
  const socket_pair sockets(GENERATE(socket_pair::kind::local, socket_pair::kind::tcp));
  auto [left, right] = exchange_channels(bed, sockets, mode);
  check_works(bed, left, right);
  SECTION("closing the channel") { must(left.close()); }
  SECTION("destroying the channel") { left = channel(); }
  SECTION("destroying a channel that was broken before") {
    buffer<> memory(bed.domain, 8);
    CHECK(!left.receive({.elements = memory.scatter()}, short_limit).has_value());
    CHECK_FALSE(is_hung_up(sockets[1]));
    left = channel();
  }
  check_told(bed, right);
}

TEST_CASE("a channel continues to work after the program has closed its sockets") {
  const testbed bed;
  socket_pair sockets;
  auto [left, right] = exchange_channels(bed, sockets);
  sockets.close(0);
  sockets.close(1);
  check_works(bed, left, right);
  check_works(bed, right, left);
  left = channel();
  check_told(bed, right);
}

TEST_CASE("channels that share a socket end separately and the last one to end notifies the peer") {
  const testbed bed;
  const socket_pair sockets;
  auto first = exchange_channels(bed, sockets);
  auto second = exchange_channels(bed, sockets);
  must(first.left.close());
  check_works(bed, second.left, second.right);
  must(first.right.close());
  check_works(bed, second.right, second.left);
  must(second.right.close());
  check_told(bed, second.left);
}

TEST_CASE("a channel that is renewed keeps its socket") {
  const testbed bed;
  const socket_pair sockets;
  tied_pair ends = exchange_channels(bed, sockets);
  channel& left = ends.left;
  channel& right = ends.right;
  for (int i = 0; i < 3; ++i) {
    must(left.renew());
    must(right.renew());
    auto other =
        std::async(std::launch::async, [&] { return exchange(sockets[1], right, patience); });
    must(exchange(sockets[0], left, patience));
    must(other.get());
    check_works(bed, left, right);
  }
  must(right.close());
  check_told(bed, left);
  // The peer of the first socket has hung up, but that does not end the next connection.
  const socket_pair anew;
  must(left.renew());
  must(right.renew());
  auto other = std::async(std::launch::async, [&] { return exchange(anew[1], right, patience); });
  must(exchange(anew[0], left, patience));
  must(other.get());
  check_works(bed, left, right);
  left = channel();
  check_told(bed, right);
}

TEST_CASE("a channel that is destroyed while it is renewed notifies the peer") {
  const testbed bed;
  const socket_pair sockets;
  tied_pair ends = exchange_channels(bed, sockets);
  const auto memory = share_bytes(bed, 8);
  const auto receive = [&]() -> eager<transport_result<completed_work>> {
    const auto received = co_await ends.left.async_receive({.elements = memory});
    ends.left = channel();
    co_return received;
  };
  const auto receiving = receive();
  CHECK(failure_of(ends.left.renew()) == error_kind::not_connected);
  CHECK(receiving.is_done());
  CHECK(is_hung_up(sockets[1]));
}

TEST_CASE("a channel leaves the socket open unless both ends' channels are tied to it") {
  const testbed bed;
  for (const bool is_left_loose : {true, false}) {
    const socket_pair sockets;
    auto [left, right] = exchange_channels(bed, sockets, wait_mode::spin(),
                                           is_left_loose ? loose : exchange_options(),
                                           is_left_loose ? exchange_options() : loose);
    CHECK(descriptors_of(sockets[0]) == 1);
    must(left.close());
    CHECK_FALSE(is_hung_up(sockets[1]));
    auto [third, fourth] = exchange_channels(bed, sockets);
    check_works(bed, third, fourth);
    CHECK(descriptors_of(sockets[0]) == 2);
  }
}

TEST_CASE("a channel whose peer is a plain queue pair is not tied to the socket") {
  const testbed bed;
  socket_pair sockets;
  const auto queue = must(completion_queue::create(bed.context, 8));
  auto other = std::async(std::launch::async, [&] {
    return exchange(sockets[1], prepared_of<transport::rc>(bed, queue), patience);
  });
  auto met = must(exchange(sockets[0], must(bed.domain.build_channel().build()), patience)).channel;
  auto peer = must(other.get());
  sockets.close(1);
  CHECK(must(met.wait(short_limit)) == wait_end::limit);
  CHECK(met.is_connected());
  must(met.close());
}

TEST_CASE("a child of fork does not end its parent's connection") {
  const testbed bed;
  const socket_pair sockets;
  const auto tied = must(detail::tied_socket::duplicate_of(sockets[0]));
  const pid_t child = ::fork();
  if (child == 0) {
    tied.tell_end();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK_FALSE(is_hung_up(sockets[1]));
  tied.tell_end();
  CHECK(is_hung_up(sockets[1]));
}

TEST_CASE("a client of an acceptor and its server detect that the other was destroyed") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  const auto hub =
      supported(channel_hub::create(bed.domain, pool, {.receives = 8}), shared_receive_queues);
  auto clients = must(hub_clients<int>::create(hub));
  auto listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  auto acceptor = must(accept_exchanges<std::uint32_t>(
      std::move(listener), [&]() noexcept -> result<exchange_offer<prepared_channel, int>> {
        VERBSPP_TRY(prepared, bed.domain.build_channel().hub(hub).build());
        return exchange_offer{std::move(prepared), 1};
      }));
  const auto connect = [&] {
    auto other = std::async(std::launch::async, [&] {
      const auto socket = must(tcp_socket::connect("127.0.0.1", port, patience));
      return must(exchange<int>(socket.descriptor(), must(bed.domain.build_channel().build()),
                                std::uint32_t{5}, patience))
          .channel;
    });
    // The program does not keep the socket.
    auto taken = must(acceptor.next(patience)).met;
    must(clients.add(std::move(taken.channel), 7));
    return other.get();
  };
  SECTION("the client is destroyed") {
    {
      const channel client = connect();
      CHECK(clients.size() == 1);
      static_cast<void>(must(clients.wait(patience)));
    }
    while (clients.size() != 0) static_cast<void>(must(clients.wait(patience)));
  }
  SECTION("the server removes the client") {
    channel client = connect();
    must(clients.wait(patience)).remove();
    check_told(bed, client);
  }
}

TEST_CASE("two ends of a meeting detect that the other was closed") {
  const testbed bed;
  const auto left_listens = must(tcp_listener::open("0"));
  const auto right_listens = must(tcp_listener::open("0"));
  const auto meet_at = [&](const tcp_listener& own, const tcp_listener& other) {
    return must(meet<int>(own, "127.0.0.1", std::to_string(other.port()),
                          must(bed.domain.build_channel().build()), 3, patience));
  };
  auto other = std::async(std::launch::async, [&] { return meet_at(right_listens, left_listens); });
  auto left = meet_at(left_listens, right_listens);
  auto right = other.get();
  must(left.met.channel.close());
  check_told(bed, right.met.channel);
}

TEST_CASE("the shutdown of a socket is detected at its other end") {
  const testbed bed;
  const auto listener = must(tcp_listener::open("0"));
  const auto near =
      must(tcp_socket::connect("127.0.0.1", std::to_string(listener.port()), patience));
  const auto far = must(listener.accept(patience));
  CHECK_FALSE(is_hung_up(far.descriptor()));
  must(near.shutdown());
  CHECK(is_hung_up(far.descriptor()));
  CHECK_FALSE(is_hung_up(near.descriptor()));
  CHECK(failure_of(tcp_socket().shutdown()) == error_kind::not_connected);
}
