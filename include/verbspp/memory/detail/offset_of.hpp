// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstring>

namespace verbspp::detail {

/// Returns the offset of a member within its object, in bytes.
///
/// The function does not need an object, which might be too large to create. All platforms that
/// have libibverbs use the Itanium C++ ABI, in which a pointer to a data member is this offset, or
/// -1 if it is null.
template <class Object, class Owner, class Member>
[[nodiscard]] std::size_t offset_of(Member Owner::* member) noexcept {
  Member Object::* const in_object = member;  // adds the offset of the base class `Owner`
  std::ptrdiff_t offset;
  static_assert(sizeof offset == sizeof in_object,
                "unsupported ABI: a pointer to a data member is not a plain offset");
  std::memcpy(&offset, &in_object, sizeof offset);
  assert(offset >= 0);
  return static_cast<std::size_t>(offset);
}

}  // namespace verbspp::detail
