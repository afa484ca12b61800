// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <string_view>

namespace softverbs {

// The names of the Unix sockets that stand for IP addresses and ports.

/// The part of a name that stands for this IP address.
std::string host_of(const ibv_gid& ip);
/// The part of a name that stands for all addresses of a family.
std::string any_host(bool of_ipv4);
/// The device's own address where a loopback address is given.
ibv_gid canonical(const ip_address& address) noexcept;

/// An abstract name, which goes with its socket.
struct unix_address {
  explicit unix_address(std::string_view name) noexcept;
  [[nodiscard]] const sockaddr* native() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  sockaddr_un address{};
  socklen_t length = 0;
};

}  // namespace softverbs
