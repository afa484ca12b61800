// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/environment.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// The only partition key of each port.
inline constexpr std::uint16_t default_pkey = 0xffff;

/// A port of any device, as packets name it.
using station = std::uint8_t;
constexpr station station_of(unsigned device, unsigned port) noexcept {
  return static_cast<station>((port - 1) * max_devices + device);
}

/// One software device. Its addresses depend on its number and the configuration alone, so that
/// they are the same in all processes of the host that meet.
struct soft_device {
  ibv_device verbs;
  // Providers ask whether a device is theirs by reading what libibverbs keeps
  // behind ibv_device; zeros say no.
  std::byte private_to_libibverbs[1024];
  std::uint8_t number;

  std::uint64_t guid() const noexcept;
  const device_description& description() const noexcept;
  const device_limits& most() const noexcept { return description().most; }
  /// Ports count from 1.
  bool has_port(unsigned port) const noexcept {
    return port >= 1 && port <= description().port_count;
  }
  const port_description& port(unsigned counted) const noexcept {
    return description().ports[counted - 1];
  }
  bool is_ethernet(unsigned counted) const noexcept {
    return port(counted).layer == link_layer::ethernet;
  }
  /// Whether one of its ports is on Ethernet.
  bool has_ethernet() const noexcept;
  /// The most bytes of a frame, with its header and a VLAN tag, on Ethernet.
  std::uint32_t longest_frame(unsigned counted) const noexcept;
};

/// The device behind a verbs handle, null if it isn't one of ours.
const soft_device* soft_device_of(const ibv_device* device) noexcept;
inline const soft_device* soft_device_of(const ibv_context* context) noexcept {
  return soft_device_of(context->device);
}

unsigned device_count() noexcept;
soft_device& device_at(unsigned number) noexcept;

/// Empty entries, indexes behind the table's end, and ports that nobody has give nothing.
std::optional<gid_entry> gid_at(unsigned device, unsigned port, unsigned index) noexcept;

/// Addresses are those of IPv4, in a GID, or of IPv6.
bool is_ipv4(const ibv_gid& gid) noexcept;
bool same(const ibv_gid& left, const ibv_gid& right) noexcept;

/// Who has this address, whichever process it is in.
std::optional<station> station_of_gid(const ibv_gid& gid, link_layer layer) noexcept;
std::optional<station> station_of_lid(std::uint16_t lid) noexcept;
std::uint16_t lid_of(station port) noexcept;

/// IP addresses, in the form of GIDs, that belong to a port's number: on Ethernet usually GIDs,
/// too.
ibv_gid ipv4_gid(unsigned device, unsigned port) noexcept;
ibv_gid unique_local_gid(unsigned device, unsigned port) noexcept;

void describe_device(const soft_device& device, ibv_device_attr& attributes) noexcept;
void describe_port(const soft_device& device, unsigned port, ibv_port_attr& attributes) noexcept;

}  // namespace softverbs
