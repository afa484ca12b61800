// SPDX-License-Identifier: Apache-2.0
#include "connections/unix_name.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>

namespace softverbs {

std::string host_of(const ibv_gid& ip) {
  std::string text;
  for (const std::uint8_t byte : ip.raw) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    text += digits.data();
  }
  return text;
}

std::string any_host(bool of_ipv4) { return of_ipv4 ? "any-ipv4" : "any-ipv6"; }

ibv_gid canonical(const ip_address& address) noexcept {
  if (!address.is_loopback()) return address.ip;
  const auto found = place_of(address);
  return found ? found->ip : address.ip;
}

unix_address::unix_address(std::string_view name) noexcept {
  address.sun_family = AF_UNIX;
  const std::size_t taken = std::min(name.size(), sizeof(address.sun_path) - 1);
  // The leading zero byte makes the name abstract.
  name.copy(address.sun_path + 1, taken);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + taken);
}

}  // namespace softverbs
