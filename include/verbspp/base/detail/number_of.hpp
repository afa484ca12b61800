// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace verbspp::detail {

/// The number that a C structure holds as an enumeration.
///
/// The driver writes it, and may know more values than this header of libibverbs; to load such a
/// one as the enumeration would be undefined.
template <class Enum>
  requires(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(std::uint32_t))
[[nodiscard]] std::uint32_t number_of(const Enum& written_by_c) noexcept {
  std::uint32_t number;
  std::memcpy(&number, &written_by_c, sizeof number);
  return number;
}

}  // namespace verbspp::detail
