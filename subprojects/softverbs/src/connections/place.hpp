// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>

namespace softverbs {

/// An IP address and a port of it; addresses of IPv4 are mapped ones, as in a GID.
struct ip_address {
  ibv_gid ip{};
  std::uint16_t port = 0;
  /// What the program calls it by: mapped addresses exist in both families.
  sa_family_t family = AF_INET;

  bool is_ipv4() const noexcept { return softverbs::is_ipv4(ip); }
  /// 0.0.0.0 and ::.
  bool is_any() const noexcept;
  bool is_loopback() const noexcept;
};

/// None for what is neither of IPv4 nor of IPv6.
std::optional<ip_address> read_address(const sockaddr* address) noexcept;
/// The reverse of it.
void write_address(const ip_address& address, sockaddr_storage& to) noexcept;

/// A port of a device, as one of its IP addresses leads to it, whichever process has that device.
struct place {
  std::uint8_t device;
  std::uint8_t port;
  /// Of the address, or of the one GID of InfiniBand.
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

/// Loopback addresses lead to the first device. RoCE v2 is preferred.
std::optional<place> place_of(const ip_address& address) noexcept;

/// This process' own end of a way to there: the device itself, if this process has it, or else the
/// first one that can reach it.
std::optional<place> place_towards(const place& target) noexcept;

/// The first address of this process' port, of IPv4 if there is one of that.
std::optional<place> first_place(unsigned device, unsigned port, bool of_ipv4) noexcept;

/// All addresses of this process' devices, one after the other.
template <typename Visitor>
void for_each_own_address(Visitor visit);

/// The `index`-th address of a port; none if that entry is empty.
std::optional<place> place_at(unsigned device, unsigned port, unsigned index) noexcept;

template <typename Visitor>
void for_each_own_address(Visitor visit) {
  for (unsigned device = 0; device < device_count(); ++device)
    for (unsigned port = 1; device_at(device).has_port(port); ++port)
      for (unsigned index = 0; index < limits::gid_entries; ++index)
        if (const auto found = place_at(device, port, index)) visit(*found);
}

}  // namespace softverbs
