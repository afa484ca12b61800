// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The owner of a verbs object that was created elsewhere, by C code or librdmacm, and passed to
/// the library: `from_native(native, ownership::borrowed)`. The owner destroys it.
enum class ownership : std::uint8_t {
  /// The library, as for objects that it creates itself. No other code may destroy the object.
  taken,
  /// The code that created the object. That code must destroy everything created from the borrowing
  /// handle before it destroys the object.
  borrowed,
};

}  // namespace verbspp
