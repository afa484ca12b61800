// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// The 40 bytes in front of each received datagram: a GRH or, in RoCE v2, an IP header; unused if
/// the datagram has neither. An IPv6 header has the format of a GRH. An IPv4 header is in the last
/// 20 bytes.
using network_header = std::array<std::byte, sizeof(ibv_grh)>;

/// Returns a header whose length is still 0, because each datagram has its own length.
network_header make_header(network type, const ibv_gid& source,
                           const ibv_global_route& to) noexcept;
/// Returns the service level that a completion on Ethernet reports. As with common network cards,
/// it identifies the type of the header: 0 for RoCE v1, 9 for v2 over IPv6, 10 for v2 over IPv4.
std::uint8_t header_type(network type, const network_header& header) noexcept;
void set_length(network_header& header, std::size_t payload) noexcept;

/// The contents of a network header.
struct network_path {
  softverbs::network network;
  ibv_gid target;
  /// The route to the sender, except for the index of this port's GID.
  ibv_global_route back;
};

/// Returns nothing if the bytes are not a valid header.
std::optional<network_path> read_header(const ibv_grh& header) noexcept;

}  // namespace softverbs
