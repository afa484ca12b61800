// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// Who destroys a verbs object that was made elsewhere, by a C program or librdmacm, and is given
/// to the library: `from_native(native, ownership::borrowed)`.
enum class ownership : std::uint8_t {
  /// The library, as it does with what it makes itself. Nobody else may.
  taken,
  /// Whoever made it, and not before everything is gone that was made of the borrowing handle.
  borrowed,
};

}  // namespace verbspp
