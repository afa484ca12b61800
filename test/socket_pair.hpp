// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <utility>

namespace verbspp::test {

/// Two sockets that are connected; either end may be closed early.
class socket_pair {
 public:
  socket_pair() {
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

 private:
  std::array<int, 2> ends_{-1, -1};
};

}  // namespace verbspp::test
