// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace verbspp::test {

/// The bytes with one of them changed.
template <std::size_t Size>
std::array<std::byte, Size> with(std::array<std::byte, Size> bytes, std::size_t offset,
                                 unsigned value) {
  bytes[offset] = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace verbspp::test
