// SPDX-License-Identifier: Apache-2.0
#include "connections/place.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace softverbs {
namespace {

constexpr std::size_t ipv4_offset = 12;

bool is_better(const place& candidate, const std::optional<place>& found) noexcept {
  return !found || (found->type == network::roce_v1 && candidate.type == network::roce_v2);
}

template <typename Predicate>
std::optional<place> first_of_port(unsigned device, unsigned port, Predicate fits) noexcept {
  std::optional<place> found;
  for (unsigned index = 0; index < limits::gid_entries; ++index)
    if (const auto candidate = place_at(device, port, index);
        candidate && fits(*candidate) && is_better(*candidate, found))
      found = candidate;
  return found;
}

}  // namespace

bool ip_address::is_any() const noexcept {
  const auto* end = std::end(ip.raw);
  const auto* start = is_ipv4() ? ip.raw + ipv4_offset : ip.raw;
  return std::all_of(start, end, [](std::uint8_t byte) { return byte == 0; });
}

bool ip_address::is_loopback() const noexcept {
  if (is_ipv4()) return ip.raw[ipv4_offset] == 127;
  const auto* last = std::end(ip.raw) - 1;
  return *last == 1 && std::all_of(ip.raw, last, [](std::uint8_t byte) { return byte == 0; });
}

std::optional<ip_address> read_address(const sockaddr* address) noexcept {
  if (address == nullptr) return std::nullopt;
  ip_address result;
  result.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    sockaddr_in native{};
    std::memcpy(&native, address, sizeof(native));
    result.ip.raw[10] = result.ip.raw[11] = 0xff;
    std::memcpy(result.ip.raw + ipv4_offset, &native.sin_addr, sizeof(native.sin_addr));
    result.port = ntohs(native.sin_port);
    return result;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 native{};
    std::memcpy(&native, address, sizeof(native));
    std::memcpy(result.ip.raw, &native.sin6_addr, sizeof(native.sin6_addr));
    result.port = ntohs(native.sin6_port);
    return result;
  }
  return std::nullopt;
}

void write_address(const ip_address& address, sockaddr_storage& to) noexcept {
  to = {};
  if (address.family == AF_INET) {
    sockaddr_in native{};
    native.sin_family = AF_INET;
    native.sin_port = htons(address.port);
    std::memcpy(&native.sin_addr, address.ip.raw + ipv4_offset, sizeof(native.sin_addr));
    std::memcpy(&to, &native, sizeof(native));
    return;
  }
  sockaddr_in6 native{};
  native.sin6_family = AF_INET6;
  native.sin6_port = htons(address.port);
  std::memcpy(&native.sin6_addr, address.ip.raw, sizeof(native.sin6_addr));
  std::memcpy(&to, &native, sizeof(native));
}

std::optional<place> place_at(unsigned device, unsigned port, unsigned index) noexcept {
  const device_description* known = described(device);
  if (known == nullptr || port > known->port_count) return std::nullopt;
  place result{.device = static_cast<std::uint8_t>(device),
               .port = static_cast<std::uint8_t>(port),
               .gid_index = static_cast<std::uint8_t>(index),
               .type = network::infiniband,
               .gid = {},
               .ip = {}};
  if (known->ports[port - 1].layer == link_layer::ethernet) {
    const auto entry = gid_at(device, port, index);
    if (!entry) return std::nullopt;
    result.type = entry->type;
    result.gid = result.ip = entry->gid;
    return result;
  }
  // On InfiniBand, index 0 stands for the IPv4 address that the port's network interface would
  // have, and index 1 for its IPv6 address.
  const auto entry = gid_at(device, port, 0);
  if (!entry || index > 1) return std::nullopt;
  result.gid_index = 0;
  result.gid = entry->gid;
  result.ip = index == 0 ? ipv4_gid(device, port) : unique_local_gid(device, port);
  return result;
}

std::optional<place> first_place(unsigned device, unsigned port, bool of_ipv4) noexcept {
  const auto preferred = first_of_port(
      device, port, [&](const place& candidate) { return is_ipv4(candidate.ip) == of_ipv4; });
  return preferred ? preferred
                   : first_of_port(device, port, [](const place& /*any*/) { return true; });
}

std::optional<place> place_of(const ip_address& address) noexcept {
  if (address.is_loopback() || address.is_any()) return first_place(0, 1, address.is_ipv4());
  for (unsigned device = 0; device < max_devices; ++device) {
    const device_description* known = described(device);
    if (known == nullptr) break;
    for (unsigned port = 1; port <= known->port_count; ++port)
      if (auto found = first_of_port(device, port,
                                     [&](const place& each) { return same(each.ip, address.ip); }))
        return found;
  }
  return std::nullopt;
}

std::optional<place> place_towards(const place& target) noexcept {
  if (target.is_of_this_process()) return target;
  for (unsigned device = 0; device < device_count(); ++device)
    for (unsigned port = 1; device_at(device).has_port(port); ++port)
      if (auto found = first_of_port(device, port, [&](const place& each) {
            return each.type == target.type && is_ipv4(each.ip) == is_ipv4(target.ip);
          }))
        return found;
  return std::nullopt;
}

}  // namespace softverbs
