// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <system_error>  // declares std::hash, and is included anyway

namespace verbspp {

// Two types, although both are 32 bits that the device chose: neither stands where the other is
// meant, and no other number becomes one by itself.

/// The key by which peers name a registered region, or a memory window, of this side's.
///
/// In host byte order, as `ibv_mr::rkey` and `ibv_mw::rkey` hold it. A plain value: it goes stale
/// with what it names, and the peer finds that out.
class remote_key {
 public:
  VERBSPP_DETAIL_NO_DEFAULT(remote_key,
                            "an invalidation needs to know of which key: write .rkey = "
                            "the remote_key of a region or window");
  /// From what the device, or a peer, told: `remote_key(native->rkey)`. No other integer type does,
  /// so that none is cut off.
  template <std::same_as<std::uint32_t> Number>
  explicit constexpr remote_key(Number value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  friend constexpr auto operator<=>(remote_key, remote_key) noexcept = default;

 private:
  std::uint32_t value_;
};

/// The key by which elements name a registered region to this side's own device.
///
/// In host byte order, as `ibv_mr::lkey` holds it. A plain value.
class local_key {
 public:
  /// From what the device told: `local_key(native->lkey)`. No other integer type does.
  template <std::same_as<std::uint32_t> Number>
  explicit constexpr local_key(Number value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  friend constexpr auto operator<=>(local_key, local_key) noexcept = default;

 private:
  std::uint32_t value_;
};

/// Writes the key as the tools do: 0x and eight hexadecimal digits.
std::ostream& operator<<(std::ostream& out, remote_key key);
std::ostream& operator<<(std::ostream& out, local_key key);

}  // namespace verbspp

template <>
struct std::hash<verbspp::remote_key> {
  [[nodiscard]] std::size_t operator()(verbspp::remote_key key) const noexcept {
    return key.value();
  }
};
template <>
struct std::hash<verbspp::local_key> {
  [[nodiscard]] std::size_t operator()(verbspp::local_key key) const noexcept {
    return key.value();
  }
};
