// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

namespace verbspp::test {

/// A TCP port that the kernel chooses, on all addresses. No other process is assigned the port
/// during the lifetime of this object. Connections to it are refused until one of the test's
/// servers listens on it. That server must permit address reuse.
class held_port {
 public:
  held_port() {
    // Falls back to IPv4 if IPv6 is not available.
    int family = AF_INET6;
    socket_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) socket_ = ::socket(family = AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) fail("socket");
    bind(family);
  }
  held_port(const held_port&) = delete;
  held_port& operator=(const held_port&) = delete;
  ~held_port() { ::close(socket_); }

  [[nodiscard]] std::uint16_t number() const { return number_; }
  [[nodiscard]] std::string text() const { return std::to_string(number_); }

 private:
  void bind(int family) {
    const int on = 1;
    const int off = 0;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = static_cast<sa_family_t>(family);
    auto* const native = reinterpret_cast<sockaddr*>(&any);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(socket_, native, size) != 0 || ::getsockname(socket_, native, &size) != 0) {
      ::close(socket_);
      fail("bind");
    }
    // Addresses of both families store the port at the same offset.
    number_ = ntohs(any.sin6_port);
  }
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  int socket_ = -1;
  std::uint16_t number_ = 0;
};

}  // namespace verbspp::test
