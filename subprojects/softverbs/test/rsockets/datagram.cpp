// SPDX-License-Identifier: Apache-2.0
// Datagrams between rsockets.
#include "catch.hpp"
#include "support/rsocket_pair.hpp"
#include "support/waiting_call.hpp"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace {

ssize_t send_to(const one_rsocket& from, const std::string& text, sockaddr_in6 address) {
  return rsendto(from.descriptor, text.data(), text.size(), 0, of_c(address), sizeof(address));
}

/// Receives a datagram. Returns its text, and the address from which it was sent.
std::pair<std::string, sockaddr_in6> receive_from(const one_rsocket& end, int flags = 0) {
  std::array<char, 5000> data{};
  sockaddr_in6 from{};
  socklen_t length = sizeof(from);
  const ssize_t got =
      rrecvfrom(end.descriptor, data.data(), data.size(), flags, of_c(from), &length);
  REQUIRE(got >= 0);
  return {std::string(data.data(), static_cast<std::size_t>(got)), from};
}

}  // namespace

TEST_CASE("rsockets: datagrams go both ways and report their senders") {
  const auto [address, domain] = GENERATE(table<const char*, int>(
      {{"198.18.83.1", AF_INET}, {"127.0.0.1", AF_INET}, {"fd73:6f66:7476::1", AF_INET6}}));
  const one_rsocket server(SOCK_DGRAM, domain);
  REQUIRE(server.bind(address) == 0);
  const one_rsocket client(SOCK_DGRAM, domain);
  CHECK(send_to(client, "there", ip(address, server.port())) == 5);
  CHECK(server.wait_for(POLLIN | POLLOUT) == (POLLIN | POLLOUT));
  CHECK(receive_from(server, MSG_PEEK).first == "there");
  const auto [text, from] = receive_from(server);
  CHECK(text == "there");
  CHECK(ntohs(from.sin6_port) == client.port());
  CHECK(send_to(server, "back", from) == 4);
  const auto [answer, back] = receive_from(client);
  CHECK(answer == "back");
  CHECK(ntohs(back.sin6_port) == server.port());
  CHECK(text_of(reinterpret_cast<const sockaddr*>(&back)) == address);
  CHECK(server.ready(POLLIN) == 0);
}

TEST_CASE("rsockets: a socket on all addresses gets datagrams of both families") {
  const one_rsocket server(SOCK_DGRAM, AF_INET6);
  REQUIRE(server.bind("::") == 0);
  const one_rsocket client(SOCK_DGRAM);
  REQUIRE(client.connect("198.18.83.2", server.port()) == 0);
  client.send("one");
  CHECK(server.receive(10) == "one");
  const one_rsocket other(SOCK_DGRAM, AF_INET6);
  REQUIRE(other.connect("::1", server.port()) == 0);
  other.send("two");
  const auto [text, from] = receive_from(server);
  CHECK(text == "two");
  CHECK(send_to(server, "back", from) == 4);
  CHECK(other.receive(10) == "back");
}

TEST_CASE("rsockets: datagrams without a receiver are lost") {
  const one_rsocket client(SOCK_DGRAM);
  CHECK(rsend(client.descriptor, "x", 1, 0) == -1);
  CHECK(errno == EDESTADDRREQ);
  CHECK(send_to(client, "x", ip("192.0.2.1", 7)) == -1);
  CHECK(errno == ENODEV);
  std::uint16_t port = 0;
  {
    const one_rsocket server(SOCK_DGRAM);
    REQUIRE(server.bind("198.18.83.1") == 0);
    port = server.port();
    const one_rsocket second(SOCK_DGRAM);
    CHECK(second.bind("198.18.83.1", port) == -1);
    CHECK(errno == EADDRINUSE);
    CHECK(second.bind("0.0.0.0", port) == -1);
    CHECK(errno == EADDRINUSE);
    // The sends don't block, although the receiver does not take the datagrams.
    for (int sent = 0; sent < 30; ++sent)
      REQUIRE(send_to(client, "x", ip("198.18.83.1", port)) == 1);
    CHECK(receive_from(server).first == "x");
  }
  CHECK(send_to(client, "x", ip("198.18.83.1", port)) == 1);
}

TEST_CASE("rsockets: a socket whose bind is refused can still get another address") {
  const one_rsocket first(SOCK_DGRAM);
  first.set(SOL_SOCKET, SO_REUSEADDR, 1);
  REQUIRE(first.bind("198.18.83.1") == 0);
  const one_rsocket second(SOCK_DGRAM);
  second.set(SOL_SOCKET, SO_REUSEADDR, 1);
  REQUIRE(second.bind("198.18.83.1", first.port()) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(second.name() == "0.0.0.0 0");
  // The send binds the socket to a free port.
  REQUIRE(send_to(second, "x", ip("198.18.83.1", first.port())) == 1);
  CHECK(ntohs(receive_from(first).second.sin6_port) == second.port());
}

TEST_CASE("rsockets: the size of a datagram is limited to the port's MTU") {
  const one_rsocket server(SOCK_DGRAM);
  REQUIRE(server.bind("198.18.83.1") == 0);
  const one_rsocket client(SOCK_DGRAM);
  REQUIRE(client.connect("198.18.83.1", server.port()) == 0);
  const std::string longest(4096, 'l');
  client.send(longest);
  CHECK(receive_from(server).first == longest);
  CHECK(rsend(client.descriptor, std::string(4097, 'l').data(), 4097, 0) == -1);
  CHECK(errno == EMSGSIZE);
  // If a datagram is longer than the buffer, it is truncated.
  client.send("abcdef");
  CHECK(server.receive(3) == "abc");
  client.send("");
  CHECK(server.receive(3).empty());
  CHECK(rlisten(server.descriptor, 1) == -1);
  CHECK(errno == EOPNOTSUPP);
  char byte = 0;
  CHECK(rrecv(server.descriptor, &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
  std::array<char, 9> text{};
  CHECK(returns_only_after(
            [&] { return static_cast<int>(rrecv(server.descriptor, text.data(), text.size(), 0)); },
            [&] { client.send("waited"); }) == 6);
}
