// SPDX-License-Identifier: Apache-2.0
#include "device/socket_gid.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace verbspp::detail {

std::optional<gid> gid_of(const sockaddr* from) noexcept {
  if (from == nullptr) return std::nullopt;
  gid address;
  if (from->sa_family == AF_INET6) {
    sockaddr_in6 ip{};
    std::memcpy(&ip, from, sizeof ip);
    std::memcpy(address.bytes.data(), &ip.sin6_addr, address.bytes.size());
    return address;
  }
  if (from->sa_family != AF_INET) return std::nullopt;
  sockaddr_in ip{};
  std::memcpy(&ip, from, sizeof ip);
  address.bytes[10] = address.bytes[11] = 0xff;
  std::memcpy(address.bytes.data() + mapped_bytes, &ip.sin_addr, sizeof ip.sin_addr);
  return address;
}

socklen_t store_address(const gid& address, std::uint16_t port, std::uint32_t interface_index,
                        sockaddr_storage& to) noexcept {
  if (address.is_ipv4_mapped()) {
    sockaddr_in ip{};
    ip.sin_family = AF_INET;
    ip.sin_port = htons(port);
    std::memcpy(&ip.sin_addr, address.bytes.data() + mapped_bytes, sizeof ip.sin_addr);
    std::memcpy(&to, &ip, sizeof ip);
    return sizeof ip;
  }
  sockaddr_in6 ip{};
  ip.sin6_family = AF_INET6;
  ip.sin6_port = htons(port);
  ip.sin6_scope_id = address.is_link_local() ? interface_index : 0;
  std::memcpy(&ip.sin6_addr, address.bytes.data(), address.bytes.size());
  std::memcpy(&to, &ip, sizeof ip);
  return sizeof ip;
}

}  // namespace verbspp::detail
