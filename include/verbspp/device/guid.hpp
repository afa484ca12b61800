// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>  // declares std::hash, too

namespace verbspp {

/// A globally unique identifier of a device, a system or an InfiniBand port. It is an EUI-64, whose
/// first 24 bits identify the manufacturer. It is printed as RDMA tools print it:
/// 0c42:a103:0065:42aa.
class guid {
 public:
  /// Zero, which means that there is no identifier.
  constexpr guid() noexcept = default;
  /// Converts a number in host byte order.
  explicit constexpr guid(std::uint64_t value) noexcept : value_(value) {}

  /// The number in host byte order.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  /// The manufacturer's IEEE number (24 bits), which is meaningful only if the identifier is
  /// neither reserved nor local. Some drivers (rxe, siw, irdma and others) derive the identifier
  /// from a MAC address and invert the local bit, so with these drivers the number differs by
  /// 0x020000.
  [[nodiscard]] constexpr std::uint32_t oui() const noexcept {
    return static_cast<std::uint32_t>(value_ >> 40);
  }
  [[nodiscard]] constexpr bool is_zero() const noexcept { return value_ == 0; }
  /// True if all bits are 0 or all bits are 1. Such a value identifies nothing.
  [[nodiscard]] constexpr bool is_reserved() const noexcept {
    return value_ == 0 || value_ == UINT64_MAX;
  }
  /// True if the local bit is set, which means that an administrator or a hypervisor has assigned
  /// the identifier, and that it is unique only locally. The result is not meaningful for drivers
  /// that invert this bit (see `oui`).
  [[nodiscard]] constexpr bool is_local() const noexcept { return (value_ >> 57 & 1) != 0; }
  /// True for a group identifier, which no device or port has.
  [[nodiscard]] constexpr bool is_group() const noexcept { return (value_ >> 56 & 1) != 0; }

  friend constexpr auto operator<=>(guid, guid) noexcept = default;

 private:
  std::uint64_t value_ = 0;
};

[[nodiscard]] std::string to_string(guid identifier);
std::ostream& operator<<(std::ostream& out, guid identifier);

}  // namespace verbspp

template <>
struct std::hash<verbspp::guid> {
  [[nodiscard]] std::size_t operator()(verbspp::guid identifier) const noexcept {
    return identifier.value();
  }
};
