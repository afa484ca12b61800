// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"
#include "wire/network_header.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace softverbs {

/// A target that no port has. Unicast packets to it are lost. Multicasts ignore their target.
inline constexpr station nobody = 0xff;

/// The target queue pair number of packets to a multicast group, and of Ethernet frames.
inline constexpr std::uint32_t multicast_qpn = 0xff'ffff;

/// The destination of packets.
struct route {
  softverbs::network network = network::infiniband;
  station target = nobody;
  bool multicast = false;
};

/// Checks an address as the kernel would, and sets the route to it. Returns 0 or an errno value.
int find_route(const soft_device& from, const ibv_ah_attr& address, route& way) noexcept;

/// True if the GID identifies a multicast group: an IPv6 multicast address, or a mapped IPv4 one.
bool is_multicast(const ibv_gid& gid) noexcept;
/// Returns the GID with which raw packet queue pairs join a group: zeros, followed by the group's
/// MAC address.
ibv_gid gid_of_mac(const std::uint8_t (&mac)[6]) noexcept;
bool is_multicast_mac(const ibv_gid& gid) noexcept;
/// True if the LID identifies a multicast group. Ethernet has no LIDs.
bool is_multicast(std::uint16_t lid) noexcept;

/// The destination of a datagram, as described by an address handle.
struct destination {
  route way;
  bool global = false;  ///< true if datagrams carry a network header
  std::uint8_t service_level = 0;
  std::uint16_t lid = 0;
  network_header header{};
};

struct address_handle final : ibv_ah {
  destination to;
};

destination describe(const soft_device& from, const ibv_ah_attr& address,
                     const route& way) noexcept;

/// Sets the address of the sender of a datagram, as ibv_init_ah_from_wc does. Returns 0 or an errno
/// value.
int address_back(const soft_device& device, std::uint8_t port, const ibv_wc& completion,
                 const ibv_grh& header, ibv_ah_attr& address) noexcept;

}  // namespace softverbs
