// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two connected sockets, one of which a wait can watch.
#pragma once

#include "../catch.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace verbspp::test {

/// Two connected sockets. A wait watches one of them, and the test uses the other.
class sockets {
 public:
  sockets() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()) == 0); }
  sockets(const sockets&) = delete;
  sockets& operator=(const sockets&) = delete;
  ~sockets() {
    ::close(ends_[0]);
    hang_up();
  }
  [[nodiscard]] int watched() const { return ends_[0]; }
  void speak() const { CHECK(::write(ends_[1], "x", 1) == 1); }
  void finish_speaking() const { CHECK(::shutdown(ends_[1], SHUT_WR) == 0); }
  void hang_up() {
    if (ends_[1] != -1) ::close(std::exchange(ends_[1], -1));
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace verbspp::test
