// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbspp::test {

/// Two connected sockets. Each end can be closed separately.
class socket_pair {
 public:
  enum class kind : std::uint8_t { local, tcp };

  explicit socket_pair(kind of = kind::local) {
    if (of == kind::tcp)
      connect_by_tcp();
    else
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()) == 0);
  }
  socket_pair(const socket_pair&) = delete;
  socket_pair& operator=(const socket_pair&) = delete;
  ~socket_pair() {
    close(0);
    close(1);
  }
  [[nodiscard]] int operator[](std::size_t end) const { return ends_[end]; }
  void close(std::size_t end) {
    if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
  }
  /// Closes the end with a TCP reset, which discards data that is in flight. Only for TCP.
  void reset(std::size_t end) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(ends_[end], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(end);
  }

 private:
  void connect_by_tcp() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const native = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener, native, size) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, native, &size) == 0);
    ends_[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(ends_[0], native, size) == 0);
    ends_[1] = ::accept(listener, nullptr, nullptr);
    REQUIRE(ends_[1] >= 0);
    ::close(listener);
    const int on = 1;
    for (const int each : ends_) ::setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  std::array<int, 2> ends_{-1, -1};
};

}  // namespace verbspp::test
