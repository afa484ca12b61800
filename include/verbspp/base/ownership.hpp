// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The owner of a verbs object that was created elsewhere, by C code or librdmacm, and passed to
/// the library: `from_native(native, ownership::borrowed)`. The owner destroys it.
enum class ownership : std::uint8_t {
  /// The library, as for objects that it creates itself. No other code may destroy it.
  taken,
  /// The code that created it. It must destroy all objects created from the borrowing handle first.
  borrowed,
};

}  // namespace verbspp
