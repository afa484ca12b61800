// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/device/guid.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace verbspp {

/// A global identifier, which is the address of a port or of a multicast group. It has 128 bits, is
/// stored in network byte order, and is written like an IPv6 address.
struct gid {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] static gid from_native(const ibv_gid& native) noexcept;
  [[nodiscard]] ibv_gid native() const noexcept;

  /// True if all bits are zero, as in an empty entry of a GID table. No port has this address.
  [[nodiscard]] constexpr bool is_zero() const noexcept { return *this == gid{}; }
  /// True for fe80::/10: the address is valid on the local link only.
  [[nodiscard]] constexpr bool is_link_local() const noexcept {
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  }
  /// True for ::ffff:a.b.c.d, the form of IPv4 addresses in RoCE.
  [[nodiscard]] constexpr bool is_ipv4_mapped() const noexcept {
    for (std::size_t i = 0; i < 10; ++i)
      if (bytes[i] != 0) return false;
    return bytes[10] == 0xff && bytes[11] == 0xff;
  }
  /// True for a multicast address: ff00::/8, or an IPv4 group (224.0.0.0/4) in the form of RoCE v2.
  [[nodiscard]] constexpr bool is_multicast() const noexcept {
    return is_ipv4_mapped() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff;
  }
  /// Returns the upper 64 bits. On InfiniBand, they identify the subnet that the port belongs to.
  [[nodiscard]] constexpr std::uint64_t subnet_prefix() const noexcept {
    std::uint64_t prefix = 0;
    for (std::size_t i = 0; i < 8; ++i) prefix = prefix << 8 | bytes[i];
    return prefix;
  }

  /// Returns the lower 64 bits. On InfiniBand, they are the port's GUID or a locally assigned GUID.
  [[nodiscard]] constexpr guid interface_id() const noexcept {
    std::uint64_t identifier = 0;
    for (std::size_t i = 8; i < 16; ++i) identifier = identifier << 8 | bytes[i];
    return guid(identifier);
  }

  friend constexpr auto operator<=>(const gid&, const gid&) noexcept = default;
};

[[nodiscard]] std::string to_string(const gid& address);
std::ostream& operator<<(std::ostream& out, const gid& address);

/// The kinds of networks in which a GID is an address, with the values of `ibv_gid_type`.
enum class gid_type : std::uint8_t {
  infiniband = IBV_GID_TYPE_IB,
  roce_v1 = IBV_GID_TYPE_ROCE_V1,  ///< a separate EtherType, within one broadcast domain
  roce_v2 = IBV_GID_TYPE_ROCE_V2,  ///< UDP port 4791 over IPv4 or IPv6, routable
};

[[nodiscard]] const char* to_string(gid_type type) noexcept;

}  // namespace verbspp

template <>
struct std::hash<verbspp::gid> {
  [[nodiscard]] std::size_t operator()(const verbspp::gid& address) const noexcept {
    return address.subnet_prefix() * 0x9e3779b97f4a7c15 + address.interface_id().value();
  }
};
