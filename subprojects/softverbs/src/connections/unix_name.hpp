// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <string_view>

namespace softverbs {

// The names of the Unix sockets that represent IP addresses and ports.

/// Returns the part of a name that represents this IP address.
std::string host_of(const ibv_gid& ip);
/// Returns the part of a name that represents the wildcard address of a family.
std::string any_host(bool of_ipv4);
/// For a loopback address, returns the address of the device that it stands for. Returns any other
/// address unchanged.
ibv_gid canonical(const ip_address& address) noexcept;

/// An abstract socket address, which vanishes with its socket.
struct unix_address {
  explicit unix_address(std::string_view name) noexcept;
  [[nodiscard]] const sockaddr* native() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  sockaddr_un address{};
  socklen_t length = 0;
};

}  // namespace softverbs
