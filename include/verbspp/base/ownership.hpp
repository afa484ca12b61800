// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// Specifies whether the library owns, and therefore destroys, a verbs object that C code or
/// librdmacm has created, and that is passed to the library, as in
/// `from_native(native, ownership::borrowed)`.
enum class ownership : std::uint8_t {
  /// The library owns the object, as it owns objects that it creates itself. No other code may
  /// destroy the object.
  taken,
  /// The code that created the object owns it. That code must destroy everything that was created
  /// from the borrowing handle before it destroys the object.
  borrowed,
};

}  // namespace verbspp
