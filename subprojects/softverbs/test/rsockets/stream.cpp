// SPDX-License-Identifier: Apache-2.0
// Streams between two rsockets.
#include "catch.hpp"
#include "support/forked.hpp"
#include "support/rsocket_pair.hpp"
#include "support/waiting_call.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

namespace {

/// Sends until there is no more room, and returns the number of bytes that were sent.
std::size_t fill(const one_rsocket& end) {
  const std::vector<char> some(100000, 'x');
  std::size_t sent = 0;
  for (;;) {
    const ssize_t now = rsend(end.descriptor, some.data(), some.size(), MSG_DONTWAIT);
    if (now < 0) break;
    sent += static_cast<std::size_t>(now);
  }
  CHECK(errno == EAGAIN);
  return sent;
}

}  // namespace

TEST_CASE("rsockets: data goes both ways and each end reports both addresses") {
  const char* const address =
      GENERATE("198.18.83.1", "198.18.83.2", "127.0.0.1", "fd73:6f66:7476::1", "::1");
  const rsocket_listener listener(address);
  const bool is_ipv6 = std::string(address).find(':') != std::string::npos;
  const one_rsocket client(SOCK_STREAM, is_ipv6 ? AF_INET6 : AF_INET);
  REQUIRE(client.connect(address, listener.port()) == 0);
  sockaddr_in6 from{};
  socklen_t length = sizeof(from);
  const one_rsocket server = one_rsocket::of(raccept(listener.descriptor, of_c(from), &length));
  CHECK(length == (is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)));
  CHECK(text_of(of_c(from)) + " " + std::to_string(ntohs(from.sin6_port)) == client.name());
  CHECK(server.peer_name() == client.name());
  CHECK(client.peer_name() == server.name());
  CHECK(server.name() == listener.name());
  client.send("there");
  CHECK(server.receive(5) == "there");
  server.send("and back");
  CHECK(client.receive(8) == "and back");
}

TEST_CASE("rsockets: a listener on all addresses accepts clients of both families") {
  const rsocket_listener listener("::");
  const one_rsocket client;
  REQUIRE(client.connect("198.18.83.2", listener.port()) == 0);
  const one_rsocket server = listener.accept();
  CHECK(server.name() == "::ffff:198.18.83.2 " + std::to_string(listener.port()));
  CHECK(server.peer_name() == "::ffff:" + client.name());
  const one_rsocket other(SOCK_STREAM, AF_INET6);
  REQUIRE(other.connect("fd73:6f66:7476::1", listener.port()) == 0);
  CHECK(listener.accept().name() == "fd73:6f66:7476::1 " + std::to_string(listener.port()));
}

TEST_CASE("rsockets: a nonblocking connect is in progress until a poll completes it") {
  const rsocket_listener listener;
  listener.make_nonblocking();
  CHECK(listener.ready(POLLIN) == 0);
  CHECK(raccept(listener.descriptor, nullptr, nullptr) == -1);
  CHECK(errno == EAGAIN);
  const one_rsocket client;
  client.make_nonblocking();
  CHECK(client.connect("198.18.83.1", listener.port()) == -1);
  CHECK(errno == EINPROGRESS);
  CHECK(client.wait_for(POLLOUT) == POLLOUT);
  CHECK(client.get(SOL_SOCKET, SO_ERROR) == 0);
  CHECK(client.connect("198.18.83.1", listener.port()) == -1);
  CHECK(errno == EISCONN);
  CHECK(listener.wait_for(POLLIN) == POLLIN);
  const one_rsocket server = listener.accept();
  CHECK(rfcntl(server.descriptor, F_GETFL) & O_NONBLOCK);
  CHECK(client.ready(POLLIN) == 0);
  server.send("x");
  CHECK(client.wait_for(POLLIN) == POLLIN);
}

TEST_CASE("rsockets: connecting to a port without a listener fails and can be repeated") {
  const one_rsocket holder;
  REQUIRE(holder.bind("198.18.83.1") == 0);
  const std::uint16_t port = holder.port();
  const one_rsocket client;
  CHECK(client.connect("198.18.83.1", port) == -1);
  CHECK(errno == ECONNREFUSED);
  client.make_nonblocking();
  CHECK(client.connect("198.18.83.1", port) == -1);
  CHECK(errno == EINPROGRESS);
  CHECK(client.connect("198.18.83.1", port) == -1);
  CHECK(errno == EALREADY);
  CHECK(client.wait_for(POLLIN | POLLOUT) == (POLLIN | POLLOUT | POLLERR));
  CHECK(client.get(SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
  CHECK(client.get(SOL_SOCKET, SO_ERROR) == 0);
  char byte = 0;
  CHECK(rrecv(client.descriptor, &byte, 1, 0) == -1);
  CHECK(errno == ENOTCONN);
  const rsocket_listener listener;
  CHECK(client.connect("198.18.83.1", listener.port()) == -1);
  CHECK(client.wait_for(POLLOUT) == POLLOUT);
}

TEST_CASE("rsockets: a full backlog makes clients wait") {
  const one_rsocket listener;
  REQUIRE(listener.bind("198.18.83.1") == 0);
  REQUIRE(rlisten(listener.descriptor, 1) == 0);
  const one_rsocket first;
  REQUIRE(first.connect("198.18.83.1", listener.port()) == 0);
  const one_rsocket second;
  second.make_nonblocking();
  REQUIRE(second.connect("198.18.83.1", listener.port()) == -1);
  CHECK(second.ready(POLLOUT) == 0);
  const one_rsocket server = one_rsocket::of(raccept(listener.descriptor, nullptr, nullptr));
  CHECK(second.wait_for(POLLOUT) == POLLOUT);
}

TEST_CASE("rsockets: unknown addresses and ports in use are refused") {
  const one_rsocket client;
  CHECK(client.connect("192.0.2.1", 1000) == -1);
  CHECK(errno == ENODEV);
  CHECK(client.connect("::1", 1000) == -1);
  CHECK(errno == EAFNOSUPPORT);
  CHECK(client.bind("192.0.2.1") == -1);
  CHECK(errno == EADDRNOTAVAIL);
  const rsocket_listener listener;
  CHECK(client.bind("198.18.83.1", listener.port()) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(client.bind("0.0.0.0", listener.port()) == -1);
  CHECK(errno == EADDRNOTAVAIL);
  event_source events;
  const cm_listener of_the_manager(events);
  CHECK(client.bind("198.18.83.1", port_of(of_the_manager.id)) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(client.bind("198.18.83.2") == 0);
  CHECK(client.connect("198.18.83.1", listener.port()) == 0);
  CHECK(listener.accept().peer_name() == client.name());
  CHECK(rsocket(AF_UNIX, SOCK_STREAM, 0) == -1);
  CHECK(errno == ENOTSUP);
  CHECK(rclose(-1) == -1);
  CHECK(errno == EBADF);
}

TEST_CASE("rsockets: an identifier that connects to a listening rsocket is rejected") {
  const rsocket_listener listener;
  listener.make_nonblocking();
  event_source events;
  one_id client(events);
  resolve(events, client, ip("198.18.83.1", listener.port()));
  REQUIRE(client.connect() == 0);
  CHECK(listener.wait_for(POLLIN) == POLLIN);
  CHECK(raccept(listener.descriptor, nullptr, nullptr) == -1);
  CHECK(events.next(RDMA_CM_EVENT_REJECTED)->status == 28);
}

TEST_CASE("rsockets: data can be peeked at, waited for, and received in pieces") {
  const rsocket_pair pair;
  std::array<char, 8> text{};
  CHECK(rrecv(pair.server.descriptor, text.data(), 4, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
  pair.client.send("abcdef");
  CHECK(rrecv(pair.server.descriptor, text.data(), 4, MSG_PEEK) == 4);
  CHECK(std::string(text.data(), 4) == "abcd");
  CHECK(rrecv(pair.server.descriptor, text.data(), 2, 0) == 2);
  CHECK(std::string(text.data(), 2) == "ab");
  CHECK(returns_only_after(
            [&] {
              return static_cast<int>(rrecv(pair.server.descriptor, text.data(), 8, MSG_WAITALL));
            },
            [&] { pair.client.send("ghij"); }) == 8);
  CHECK(std::string(text.data(), 8) == "cdefghij");
  const std::array<iovec, 2> parts{iovec{text.data(), 3}, iovec{text.data() + 4, 3}};
  CHECK(rwritev(pair.client.descriptor, parts.data(), 2) == 6);
  std::array<char, 6> got{};
  std::array<iovec, 2> into{iovec{got.data(), 1}, iovec{got.data() + 1, 5}};
  sockaddr_in6 from{};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  CHECK(rrecvmsg(pair.server.descriptor, &message, MSG_WAITALL) == 6);
  CHECK(std::string(got.data(), 6) == "cdeghi");
  CHECK(message.msg_namelen == sizeof(sockaddr_in));
  CHECK(ntohs(from.sin6_port) == pair.client.port());
}

TEST_CASE("rsockets: a send without enough room sends a part and a poll waits for room") {
  const rsocket_pair pair;
  const std::size_t sent = fill(pair.client);
  CHECK(sent > 0);
  CHECK(pair.client.ready(POLLOUT) == 0);
  CHECK(pair.server.receive(sent) == std::string(sent, 'x'));
  CHECK(pair.client.wait_for(POLLOUT) == POLLOUT);
  CHECK(pair.server.ready(POLLIN) == 0);
  // A blocking send sends all bytes.
  const std::string much(4 * sent, 'y');
  std::string got;
  const int result = returns_only_after(
      [&] {
        return rsend(pair.client.descriptor, much.data(), much.size(), 0) ==
               static_cast<ssize_t>(much.size());
      },
      [&] { got = pair.server.receive(much.size()); });
  CHECK(result == 1);
  CHECK(got == much);
}

TEST_CASE("rsockets: each direction of a connection can be shut down separately") {
  const rsocket_pair pair;
  pair.client.send("last");
  REQUIRE(rshutdown(pair.client.descriptor, SHUT_WR) == 0);
  CHECK(rsend(pair.client.descriptor, "x", 1, 0) == -1);
  CHECK(errno == ECONNRESET);
  CHECK(pair.server.ready(POLLIN | POLLOUT) == (POLLIN | POLLOUT));
  CHECK(pair.server.receive(10) == "last");
  CHECK(pair.server.receive(10).empty());
  pair.server.send("still");
  CHECK(pair.client.receive(5) == "still");
  REQUIRE(rshutdown(pair.server.descriptor, SHUT_WR) == 0);
  CHECK(pair.client.receive(1).empty());
  CHECK((pair.client.ready(POLLIN) & POLLHUP) != 0);
}

TEST_CASE("rsockets: a poll reports the end only after the data before it") {
  rsocket_pair pair;
  pair.client.send("last");
  pair.client.close();
  CHECK(pair.server.ready(POLLIN) == POLLIN);
  CHECK(pair.server.receive(4) == "last");
  CHECK(pair.server.ready(POLLIN) == (POLLIN | POLLHUP));
  CHECK(pair.server.receive(1).empty());
}

TEST_CASE("rsockets: a peer that closes with unread data resets the connection") {
  rsocket_pair pair;
  pair.client.send("unread");
  pair.server.close();
  char byte = 0;
  CHECK(rrecv(pair.client.descriptor, &byte, 1, 0) == -1);
  CHECK(errno == ECONNRESET);
  CHECK(rsend(pair.client.descriptor, &byte, 1, 0) == -1);
  CHECK(errno == ECONNRESET);
}

TEST_CASE("rsockets: a killed peer ends the connection") {
  const rsocket_listener listener;
  const std::uint16_t port = listener.port();
  const pid_t child = ::fork();
  if (child == 0) {
    const one_rsocket client;
    if (client.connect("198.18.83.1", port) == 0) client.send("x");
    ::pause();
    ::_exit(0);
  }
  const one_rsocket server = listener.accept();
  CHECK(server.receive(1) == "x");
  char byte = 0;
  const int got =
      returns_only_after([&] { return static_cast<int>(rrecv(server.descriptor, &byte, 1, 0)); },
                         [&] { ::kill(child, SIGKILL); });
  CHECK(got == 0);
  ::waitpid(child, nullptr, 0);
  CHECK((server.ready(POLLIN) & POLLHUP) != 0);
  CHECK(rsend(server.descriptor, &byte, 1, 0) == -1);
  CHECK(errno == ECONNRESET);
}

TEST_CASE("rsockets: a child of fork can use its parent's connection") {
  rsocket_pair pair;
  const forked child([&] {
    char byte = 0;
    return rrecv(pair.server.descriptor, &byte, 1, 0) == 1 && byte == 'p' &&
           rsend(pair.server.descriptor, "c", 1, 0) == 1;
  });
  pair.server.close();
  pair.client.send("p");
  CHECK(pair.client.receive(1) == "c");
  CHECK(child.ended_well());
  CHECK(pair.client.receive(1).empty());
}

TEST_CASE("rsockets: accept and poll block") {
  const rsocket_listener listener;
  const one_rsocket client;
  const int accepted =
      returns_only_after([&] { return raccept(listener.descriptor, nullptr, nullptr); },
                         [&] { REQUIRE(client.connect("198.18.83.1", listener.port()) == 0); });
  const one_rsocket server = one_rsocket::of(accepted);
  pollfd asked{client.descriptor, POLLIN, 0};
  CHECK(returns_only_after([&] { return rpoll(&asked, 1, -1); }, [&] { server.send("x"); }) == 1);
  CHECK(asked.revents == POLLIN);
}

TEST_CASE("rsockets: select and poll accept other descriptors as well") {
  const rsocket_pair pair;
  std::array<int, 2> pipe{};
  REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
  pair.client.send("x");
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(pair.server.descriptor, &readable);
  FD_SET(pipe[0], &readable);
  fd_set writable;
  FD_ZERO(&writable);
  FD_SET(pipe[1], &writable);
  FD_SET(pair.server.descriptor, &writable);
  const int most = std::max({pair.server.descriptor, pipe[0], pipe[1]}) + 1;
  timeval limit{10, 0};
  CHECK(rselect(most, &readable, &writable, nullptr, &limit) == 3);
  CHECK(FD_ISSET(pair.server.descriptor, &readable));
  CHECK_FALSE(FD_ISSET(pipe[0], &readable));
  CHECK(FD_ISSET(pipe[1], &writable));
  CHECK(FD_ISSET(pair.server.descriptor, &writable));
  std::array asked{pollfd{-1, POLLIN, 0}, pollfd{pipe[1], POLLOUT, 0},
                   pollfd{pair.server.descriptor, POLLIN, 0}};
  CHECK(rpoll(asked.data(), asked.size(), 0) == 2);
  CHECK(asked[0].revents == 0);
  CHECK(asked[1].revents == POLLOUT);
  CHECK(asked[2].revents == POLLIN);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("rsockets: options can be set and queried") {
  const one_rsocket end;
  CHECK(end.get(IPPROTO_TCP, TCP_NODELAY) == 0);
  end.set(IPPROTO_TCP, TCP_NODELAY, 1);
  CHECK(end.get(IPPROTO_TCP, TCP_NODELAY) == 1);
  end.set(SOL_SOCKET, SO_SNDBUF, 30000);
  CHECK(end.get(SOL_SOCKET, SO_SNDBUF) == 60000);
  end.set(SOL_RDMA, RDMA_IOMAPSIZE, 3);
  CHECK(end.get(SOL_RDMA, RDMA_IOMAPSIZE) == 3);
  const int on = 1;
  CHECK(rsetsockopt(end.descriptor, SOL_SOCKET, SO_MARK, &on, sizeof(on)) == -1);
  CHECK(errno == ENOTSUP);
  linger lingers{1, 5};
  CHECK(rsetsockopt(end.descriptor, SOL_SOCKET, SO_LINGER, &lingers, sizeof(lingers)) == 0);
  lingers = {};
  socklen_t length = sizeof(lingers);
  CHECK(rgetsockopt(end.descriptor, SOL_SOCKET, SO_LINGER, &lingers, &length) == 0);
  CHECK((lingers.l_onoff == 1 && lingers.l_linger == 5));
  CHECK(rfcntl(end.descriptor, F_GETFD) == 0);
  const one_rsocket other(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
  const rsocket_listener listener;
  CHECK(other.connect("198.18.83.1", listener.port()) == -1);
  CHECK(other.wait_for(POLLOUT) == POLLOUT);
  CHECK(rfcntl(other.descriptor, F_GETFD) == FD_CLOEXEC);
  CHECK((rfcntl(other.descriptor, F_GETFL) & O_NONBLOCK) != 0);
  CHECK(rsetsockopt(other.descriptor, SOL_RDMA, RDMA_IOMAPSIZE, &on, sizeof(on)) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("rsockets: a failed device or port makes connections fail") {
  const auto [fault, error] = GENERATE(
      table<const char*, int>({{"device-fatal@soft0", ENODEV}, {"port-down@soft0", ENETDOWN}}));
  const rsocket_listener listener;
  const one_rsocket client;
  REQUIRE(softverbs_inject(fault) == 0);
  CHECK(client.connect("198.18.83.1", listener.port()) == -1);
  CHECK(errno == error);
  softverbs_reset_faults();
  CHECK(client.connect("198.18.83.1", listener.port()) == 0);
}
