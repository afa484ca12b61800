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

/// The number by which packets identify a port of any device.
using station = std::uint8_t;
constexpr station station_of(unsigned device, unsigned port) noexcept {
  return static_cast<station>((port - 1) * max_devices + device);
}

/// A software device. Its addresses depend only on its number and the configuration, so other
/// processes can compute them.
struct soft_device {
  ibv_device verbs;
  // Providers recognize their own devices by data that libibverbs keeps after ibv_device. Zeros
  // match no provider.
  std::byte private_to_libibverbs[1024];
  std::uint8_t number;

  std::uint64_t guid() const noexcept;
  const device_description& description() const noexcept;
  const device_limits& most() const noexcept { return description().most; }
  /// Port numbers start at 1.
  bool has_port(unsigned port) const noexcept {
    return port >= 1 && port <= description().port_count;
  }
  const port_description& port(unsigned counted) const noexcept {
    return description().ports[counted - 1];
  }
  bool is_ethernet(unsigned counted) const noexcept {
    return port(counted).layer == link_layer::ethernet;
  }
  /// True if one of its ports is on Ethernet.
  bool has_ethernet() const noexcept;
  /// The maximum size of an Ethernet frame on port `counted`, in bytes, including the Ethernet
  /// header and a VLAN tag.
  std::uint32_t longest_frame(unsigned counted) const noexcept;
};

/// Returns the device of a verbs handle, or null if it isn't a soft device.
const soft_device* soft_device_of(const ibv_device* device) noexcept;
inline const soft_device* soft_device_of(const ibv_context* context) noexcept {
  return soft_device_of(context->device);
}

unsigned device_count() noexcept;
soft_device& device_at(unsigned number) noexcept;

/// Returns an entry of a port's GID table. Returns nothing for an empty entry, an index beyond the
/// end of the table, or a port that no process has.
std::optional<gid_entry> gid_at(unsigned device, unsigned port, unsigned index) noexcept;

/// True if the GID contains an IPv4 address; otherwise, it is an IPv6 address.
bool is_ipv4(const ibv_gid& gid) noexcept;
bool same(const ibv_gid& left, const ibv_gid& right) noexcept;

/// Returns the port with this address, which may be a port of another process, or nothing if there
/// is none.
std::optional<station> station_of_gid(const ibv_gid& gid, link_layer layer) noexcept;
std::optional<station> station_of_lid(std::uint16_t lid) noexcept;
std::uint16_t lid_of(station port) noexcept;

/// The IP addresses of a port, in the format of GIDs. They depend only on the numbers of the device
/// and the port. On Ethernet, the default GID table contains them.
ibv_gid ipv4_gid(unsigned device, unsigned port) noexcept;
ibv_gid unique_local_gid(unsigned device, unsigned port) noexcept;

void describe_device(const soft_device& device, ibv_device_attr& attributes) noexcept;
void describe_port(const soft_device& device, unsigned port, ibv_port_attr& attributes) noexcept;

}  // namespace softverbs
