// SPDX-License-Identifier: Apache-2.0
// Listeners that receive messages that no peer would send, clients that send no message, and a
// forked child that inherits connections.
#include "catch.hpp"
#include "support/cm_fabric.hpp"
#include "support/rsocket_pair.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

/// Searches the kernel's list of sockets for the one that listens on `port`, and returns its name.
std::string name_of_port(std::uint16_t port) {
  const std::string end = "/106/" + std::to_string(port);
  std::FILE* const sockets = std::fopen("/proc/net/unix", "re");
  REQUIRE(sockets != nullptr);
  std::string found;
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), sockets) != nullptr) {
    std::string text(line.data());
    text.resize(text.find_last_not_of('\n') + 1);
    const std::size_t start = text.find("@softverbs-connections/");
    if (start != std::string::npos && text.ends_with(end)) found = text.substr(start + 1);
  }
  std::fclose(sockets);
  return found;
}

int connect_to(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  // steady: this is the name of a socket of this process, found by its port
  name.copy(to.sun_path + 1, sizeof(to.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&to), length) == 0);
  return socket;
}

}  // namespace

TEST_CASE("cm: a listener ignores malformed requests") {
  event_source events;
  cm_listener listener(events);
  const std::string name = name_of_port(port_of(listener.id));
  REQUIRE_FALSE(name.empty());
  std::mt19937 random(5383);
  for (int round = 0; round < 200; ++round) {
    // Half of the messages have the right size and magic number, so that the receiver checks more
    // of their content.
    const bool is_alike = round % 2 == 0;
    std::vector<std::uint8_t> bytes(is_alike ? 280 : random() % 600 + 1);
    std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random()); });
    if (is_alike) std::memcpy(bytes.data(), "MCVS\1\0", 6);
    const int socket = connect_to(name);
    REQUIRE(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
    REQUIRE(::fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    rdma_cm_event* none = nullptr;
    REQUIRE(rdma_get_cm_event(events.channel, &none) == -1);
    ::close(socket);
  }
  event_source client_events;
  one_id client(client_events);
  resolve(client_events, client, listener.address());
  REQUIRE(client.connect() == 0);
  const one_id server(events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
}

TEST_CASE("cm: clients that have not sent their requests yet move with their listener") {
  event_source before;
  event_source after;
  const cm_listener listener(before);
  const int socket = connect_to(name_of_port(port_of(listener.id)));
  CHECK(is_silent(before));
  REQUIRE(rdma_migrate_id(listener.id, after.channel) == 0);
  char byte = 0;
  CHECK(::recv(socket, &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
  // The listener closes the connection when it reads this malformed request.
  REQUIRE(::send(socket, &byte, 1, MSG_NOSIGNAL) == 1);
  CHECK(is_silent(after));
  CHECK(::recv(socket, &byte, 1, MSG_DONTWAIT) == 0);
  ::close(socket);
}

TEST_CASE("rsockets: a listener skips clients that send malformed messages") {
  const rsocket_listener listener;
  listener.make_nonblocking();
  const std::string name = name_of_port(listener.port());
  REQUIRE_FALSE(name.empty());
  std::mt19937 random(5383);
  for (int round = 0; round < 100; ++round) {
    // Half of the messages have the right size and magic number, but none has a descriptor.
    const bool is_alike = round % 2 == 0;
    std::vector<std::uint8_t> bytes(is_alike ? 48 : random() % 100 + 1);
    std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random()); });
    if (is_alike) std::memcpy(bytes.data(), "SRVS", 4);
    const int socket = connect_to(name);
    REQUIRE(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
    CHECK(listener.wait_for(POLLIN) == POLLIN);
    REQUIRE(raccept(listener.descriptor, nullptr, nullptr) == -1);
    REQUIRE(errno == EAGAIN);
    ::close(socket);
  }
  // A client that disconnects without sending anything.
  ::close(connect_to(name));
  const one_rsocket client;
  REQUIRE(client.connect("198.18.83.1", listener.port()) == 0);
  const one_rsocket server = listener.accept();
  client.send("x");
  CHECK(server.wait_for(POLLIN) == POLLIN);
  CHECK(server.receive(1) == "x");
}

TEST_CASE("cm: a child of fork doesn't keep its parent's connections open") {
  cm_pair pair;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  pair.client.destroy();
  pair.server_events.next(RDMA_CM_EVENT_DISCONNECTED);
  const std::uint16_t port = port_of(pair.listener.id);
  pair.listener.destroy();
  // The child may take a moment to close its copy of the descriptor.
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (!name_of_port(port).empty()) REQUIRE(std::chrono::steady_clock::now() < limit);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
