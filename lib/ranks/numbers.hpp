// SPDX-License-Identifier: Apache-2.0
/// \file
/// Numbers as ranks send them to each other and to their meeting point: the highest byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// \pre there is room for so many bytes
inline void put_number(std::span<std::byte> to, std::size_t at, std::uint64_t number,
                       unsigned size = 4) noexcept {
  for (unsigned i = 0; i < size; ++i)
    to[at + i] = static_cast<std::byte>(number >> 8U * (size - 1 - i) & 0xffU);
}
/// Of at most four bytes; of those that are there.
[[nodiscard]] inline std::uint32_t number_at(std::span<const std::byte> from, std::size_t at,
                                             unsigned size = 4) noexcept {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < size && at + i < from.size(); ++i)
    number = number << 8U | std::to_integer<std::uint32_t>(from[at + i]);
  return number;
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
