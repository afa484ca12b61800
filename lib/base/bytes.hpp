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

/// Reads a number whose most significant byte is stored first.
template <std::size_t Size>
[[nodiscard]] constexpr std::uint64_t load_big_endian(
    std::span<const std::byte, Size> from) noexcept {
  static_assert(Size <= sizeof(std::uint64_t));
  std::uint64_t number = 0;
  for (const std::byte byte : from) number = number << 8 | std::to_integer<std::uint64_t>(byte);
  return number;
}

/// Writes a number at an offset as `size` bytes, the most significant byte first. \pre the span has
/// room for the number
inline void put_number(std::span<std::byte> to, std::size_t at, std::uint64_t number,
                       unsigned size = 4) noexcept {
  for (unsigned i = 0; i < size; ++i)
    to[at + i] = static_cast<std::byte>(number >> 8U * (size - 1 - i) & 0xffU);
}

/// Reads a number that takes up `size` bytes, at most four, at an offset. If the span ends earlier,
/// reads only the bytes before its end.
[[nodiscard]] inline std::uint32_t number_at(std::span<const std::byte> from, std::size_t at,
                                             unsigned size = 4) noexcept {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < size && at + i < from.size(); ++i)
    number = number << 8U | std::to_integer<std::uint32_t>(from[at + i]);
  return number;
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
