// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace verbspp::detail {

/// Returns the number in a field of a C structure, if the type of the field is an enumeration.
///
/// The driver writes the field, and may use values that the libibverbs header of this build does
/// not declare. Loading such a value as the enumeration can be undefined behaviour.
template <class Enum>
  requires(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(std::uint32_t))
[[nodiscard]] std::uint32_t number_of(const Enum& written_by_c) noexcept {
  std::uint32_t number;
  std::memcpy(&number, &written_by_c, sizeof number);
  return number;
}

}  // namespace verbspp::detail
