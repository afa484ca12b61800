// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace verbspp {

/// True for enumerations whose enumerators are bits that may be combined. A program can specialize
/// it for its own enumerations.
template <class Bit>
inline constexpr bool is_flag_bit = false;

/// A set of bits from one enumeration. Bits of different enumerations cannot be combined.
///
/// This is a structural type, so a set can be a template argument. Memory regions have such an
/// argument for their rights, and builders have one for the parameters that were set.
template <class Bit>
struct flags {
  using underlying_type = std::underlying_type_t<Bit>;

  constexpr flags() noexcept = default;
  constexpr flags(Bit bit) noexcept : bits(static_cast<underlying_type>(bit)) {}

  /// Converts bits, such as those from the C interface, without checking that each has an
  /// enumerator.
  [[nodiscard]] static constexpr flags from_bits(underlying_type value) noexcept {
    flags result;
    result.bits = value;
    return result;
  }

  [[nodiscard]] constexpr bool contains(flags other) const noexcept {
    return (bits & other.bits) == other.bits;
  }
  [[nodiscard]] constexpr bool intersects(flags other) const noexcept {
    return (bits & other.bits) != 0;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits == 0; }

  friend constexpr flags operator|(flags a, flags b) noexcept { return from_bits(a.bits | b.bits); }
  friend constexpr flags operator&(flags a, flags b) noexcept { return from_bits(a.bits & b.bits); }
  /// Returns the bits that are in `a` but not in `b`.
  friend constexpr flags operator-(flags a, flags b) noexcept {
    return from_bits(a.bits & ~b.bits);
  }
  constexpr flags& operator|=(flags other) noexcept { return *this = *this | other; }
  constexpr flags& operator&=(flags other) noexcept { return *this = *this & other; }
  constexpr flags& operator-=(flags other) noexcept { return *this = *this - other; }
  friend constexpr bool operator==(flags, flags) noexcept = default;

  underlying_type bits{};  ///< public because a structural type has no private members
};

template <class Bit>
  requires is_flag_bit<Bit>
constexpr flags<Bit> operator|(Bit a, Bit b) noexcept {
  return flags<Bit>(a) | flags<Bit>(b);
}

}  // namespace verbspp
