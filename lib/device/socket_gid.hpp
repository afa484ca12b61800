// SPDX-License-Identifier: Apache-2.0
/// \file
/// Converts between socket addresses and GIDs, which are RoCE's addresses.
#pragma once

#include <verbspp/device/gid.hpp>

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The length in bytes of the prefix ::ffff:0:0 before an IPv4 address.
inline constexpr std::size_t mapped_bytes = 12;

/// Returns the IP address of a socket address, as 16 bytes. Empty if the socket address is
/// not an IP address, or is null.
[[nodiscard]] std::optional<gid> gid_of(const sockaddr* from) noexcept;

/// Writes a GID as a socket address. \returns the size of the socket address
/// \param interface_index the interface of a link-local address
[[nodiscard]] socklen_t store_address(const gid& address, std::uint16_t port,
                                      std::uint32_t interface_index, sockaddr_storage& to) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
