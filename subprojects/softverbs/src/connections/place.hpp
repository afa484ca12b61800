// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>

namespace softverbs {

/// An IP address and a port number. IPv4 addresses are mapped to IPv6, as in a GID.
struct ip_address {
  ibv_gid ip{};
  std::uint16_t port = 0;
  /// The family that the program uses for the address. A mapped IPv4 address may be of either
  /// family.
  sa_family_t family = AF_INET;

  bool is_ipv4() const noexcept { return softverbs::is_ipv4(ip); }
  /// True for 0.0.0.0 and ::.
  bool is_any() const noexcept;
  bool is_loopback() const noexcept;
};

/// Converts a socket address. Returns nothing if it is neither an IPv4 nor an IPv6 address.
std::optional<ip_address> read_address(const sockaddr* address) noexcept;
/// Converts an address to a socket address.
void write_address(const ip_address& address, sockaddr_storage& to) noexcept;

/// A port of a device in any process, identified by one of its IP addresses.
struct place {
  std::uint8_t device;
  std::uint8_t port;
  /// The index of `gid` in the GID table. Always 0 on InfiniBand, where `ip` is not from the table.
  std::uint8_t gid_index;
  network type;
  ibv_gid gid;
  ibv_gid ip;

  const port_description& description() const noexcept {
    return described(device)->ports[port - 1];
  }
  bool is_ethernet() const noexcept { return description().layer == link_layer::ethernet; }
  bool is_of_this_process() const noexcept { return device < device_count(); }
};

/// Returns the port with this address, or nothing if no device has the address. A loopback or
/// wildcard address stands for the first port of the first device. If the port has the address for
/// both RoCE v1 and v2, the result is for v2.
std::optional<place> place_of(const ip_address& address) noexcept;

/// Returns this process's end of a route to `target`. This end is the target itself if the target
/// is in this process. Otherwise, it is this process's first port that can reach the target.
std::optional<place> place_towards(const place& target) noexcept;

/// Returns the first IPv4 address of a port, or the first IPv6 address if `of_ipv4` is false. If
/// the port has no address of that family, returns its first address. Addresses for RoCE v2 take
/// precedence over those for v1.
std::optional<place> first_place(unsigned device, unsigned port, bool of_ipv4) noexcept;

/// Calls `visit` for each address of this process's devices.
template <typename Visitor>
void for_each_own_address(Visitor visit);

/// Returns the port together with its address at `index`, or nothing if there is no such address.
std::optional<place> place_at(unsigned device, unsigned port, unsigned index) noexcept;

template <typename Visitor>
void for_each_own_address(Visitor visit) {
  for (unsigned device = 0; device < device_count(); ++device)
    for (unsigned port = 1; device_at(device).has_port(port); ++port)
      for (unsigned index = 0; index < limits::gid_entries; ++index)
        if (const auto found = place_at(device, port, index)) visit(*found);
}

}  // namespace softverbs
