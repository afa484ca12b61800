// SPDX-License-Identifier: Apache-2.0
/// \file
/// Between IP addresses as sockets have them, and as RoCE writes them.
#pragma once

#include <verbspp/device/gid.hpp>

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Those of ::ffff:0:0, before an IPv4 address.
inline constexpr std::size_t mapped_bytes = 12;

/// What a socket address says, as 16 bytes; empty of other families than IP, and of none.
[[nodiscard]] std::optional<gid> gid_of(const sockaddr* from) noexcept;

/// Writes the socket address of a GID. \returns its size
/// \param interface_index of a link-local address
[[nodiscard]] socklen_t store_address(const gid& address, std::uint16_t port,
                                      std::uint32_t interface_index, sockaddr_storage& to) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
