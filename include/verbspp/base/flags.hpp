// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace verbspp {

/// True for enumerations whose enumerators are bits that may be combined. A program can specialize
/// it for its own enumerations.
template <class Bit>
inline constexpr bool is_flag_bit = false;

/// A set of the bits of one enumeration; bits of different enumerations do not mix.
///
/// A structural type, so that a set can be a template argument, such as the rights of a memory
/// region, or the parameters given to a builder.
template <class Bit>
struct flags {
  using underlying_type = std::underlying_type_t<Bit>;

  constexpr flags() noexcept = default;
  constexpr flags(Bit bit) noexcept : bits(static_cast<underlying_type>(bit)) {}

  /// Converts bits, such as those from the C interface, without checking that enumerators exist for
  /// them.
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
  /// The bits of `a` that `b` does not have.
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
