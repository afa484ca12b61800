// SPDX-License-Identifier: Apache-2.0
/// \file
/// Conversion between the addresses of sockets and GIDs, the addresses of RoCE.
#pragma once

#include <verbspp/device/gid.hpp>

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The length of the prefix ::ffff:0:0 before an IPv4 address.
inline constexpr std::size_t mapped_bytes = 12;

/// The IP address of a socket address, as 16 bytes; empty for other families, and for null.
[[nodiscard]] std::optional<gid> gid_of(const sockaddr* from) noexcept;

/// Writes the socket address of a GID. \returns its size
/// \param interface_index the interface of a link-local address
[[nodiscard]] socklen_t store_address(const gid& address, std::uint16_t port,
                                      std::uint32_t interface_index, sockaddr_storage& to) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
