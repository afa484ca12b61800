// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Writes the low `Size` bytes of a number, most significant first.
template <std::size_t Size>
constexpr void store_big_endian(std::span<std::byte, Size> to, std::uint64_t number) noexcept {
  for (std::size_t i = 0; i < Size; ++i)
    to[i] = static_cast<std::byte>(number >> 8 * (Size - 1 - i) & 0xff);
}

/// Reads such a number.
template <std::size_t Size>
[[nodiscard]] constexpr std::uint64_t load_big_endian(
    std::span<const std::byte, Size> from) noexcept {
  static_assert(Size <= sizeof(std::uint64_t));
  std::uint64_t number = 0;
  for (const std::byte byte : from) number = number << 8 | std::to_integer<std::uint64_t>(byte);
  return number;
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
