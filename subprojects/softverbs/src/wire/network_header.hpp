// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// What stands in front of each datagram in its receive: a GRH, or what RoCE v2 has
/// for it, which is IPv6's header (of the same form) or, in the last 20 bytes,
/// IPv4's.
using network_header = std::array<std::byte, sizeof(ibv_grh)>;

/// Lacks the length, which each datagram has its own of.
network_header make_header(network type, const ibv_gid& source,
                           const ibv_global_route& to) noexcept;
/// What a completion on Ethernet has for a service level, as with network cards: which header it
/// is. Programs can't tell from the 40 bytes alone. 0 for RoCE v1; 9 for v2 by IPv6, 10 by IPv4.
std::uint8_t header_type(network type, const network_header& header) noexcept;
void set_length(network_header& header, std::size_t payload) noexcept;

/// What a header says.
struct network_path {
  softverbs::network network;
  ibv_gid target;
  /// To its sender; without the index of the own GID.
  ibv_global_route back;
};

/// Nothing if it is none.
std::optional<network_path> read_header(const ibv_grh& header) noexcept;

}  // namespace softverbs
