// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace verbspp::test {

/// Returns a copy of the bytes in which the byte at `offset` is replaced.
template <std::size_t Size>
std::array<std::byte, Size> with(std::array<std::byte, Size> bytes, std::size_t offset,
                                 unsigned value) {
  bytes[offset] = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace verbspp::test
