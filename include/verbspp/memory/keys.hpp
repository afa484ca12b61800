// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <system_error>  // declares std::hash, and is already included by other headers

namespace verbspp {

// Remote and local keys are 32-bit numbers. They have separate types, so that they can't be
// confused, and no number converts to either type implicitly.

/// The key by which one end refers to a registered region or a memory window of the other end.
///
/// The key is a plain value in host byte order, like `ibv_mr::rkey` and `ibv_mw::rkey`. The key of
/// a region becomes invalid when the region is destroyed, and usually when it is changed. The key
/// of a window becomes invalid when the window is destroyed, invalidated or bound again. On RC, a
/// peer that uses an invalid key gets an error.
class remote_key {
 public:
  VERBSPP_DETAIL_NO_DEFAULT(remote_key,
                            "a remote_key has no default value: in an invalidation, set .rkey to "
                            "the key to invalidate");
  /// Wraps a key that the device or a peer supplied, as in `remote_key(native->rkey)`. Other
  /// integer types are rejected, so that no value is truncated.
  template <std::same_as<std::uint32_t> Number>
  explicit constexpr remote_key(Number value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  friend constexpr auto operator<=>(remote_key, remote_key) noexcept = default;

 private:
  std::uint32_t value_;
};

/// The key by which the elements of this side's requests refer to a registered region.
///
/// The key is a plain value in host byte order, like `ibv_mr::lkey`.
class local_key {
 public:
  /// Wraps a key that the device supplied, as in `local_key(native->lkey)`. Other integer types are
  /// rejected.
  template <std::same_as<std::uint32_t> Number>
  explicit constexpr local_key(Number value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  friend constexpr auto operator<=>(local_key, local_key) noexcept = default;

 private:
  std::uint32_t value_;
};

/// Writes the key in hexadecimal: 0x and eight digits.
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
