// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace verbspp::test {

/// Returns the bytes with the byte at `offset` changed.
template <std::size_t Size>
std::array<std::byte, Size> with(std::array<std::byte, Size> bytes, std::size_t offset,
                                 unsigned value) {
  bytes[offset] = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace verbspp::test
