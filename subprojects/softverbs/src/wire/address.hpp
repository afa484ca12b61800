// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"
#include "wire/network_header.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace softverbs {

/// A packet with this for its target gets lost.
inline constexpr station nobody = 0xff;

/// The queue pair number that stands for all members of a multicast group.
inline constexpr std::uint32_t multicast_qpn = 0xff'ffff;

/// Where packets go.
struct route {
  softverbs::network network = network::infiniband;
  station target = nobody;
  bool multicast = false;
};

/// What the kernel would check of an address; 0 or an errno.
int find_route(const soft_device& from, const ibv_ah_attr& address, route& way) noexcept;

/// Whether the GID is one of a group: those of IPv6 multicast, and IPv4's mapped.
bool is_multicast(const ibv_gid& gid) noexcept;
/// The form in which raw packet queue pairs name a group: its MAC address at the end, and zeros.
ibv_gid gid_of_mac(const std::uint8_t (&mac)[6]) noexcept;
bool is_multicast_mac(const ibv_gid& gid) noexcept;
/// The same for LIDs, where InfiniBand is the link layer.
bool is_multicast(std::uint16_t lid) noexcept;

/// All that an address handle says about where a datagram goes.
struct destination {
  route way;
  bool global = false;  ///< with a network header
  std::uint8_t service_level = 0;
  std::uint16_t lid = 0;
  network_header header{};
};

struct address_handle final : ibv_ah {
  destination to;
};

destination describe(const soft_device& from, const ibv_ah_attr& address,
                     const route& way) noexcept;

/// As ibv_init_ah_from_wc: the address of who sent a datagram. 0 or an errno.
int address_back(const soft_device& device, std::uint8_t port, const ibv_wc& completion,
                 const ibv_grh& header, ibv_ah_attr& address) noexcept;

}  // namespace softverbs
