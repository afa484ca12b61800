// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>  // declares the range concepts, and is smaller than <ranges>
#include <type_traits>

namespace verbspp::detail {

template <class Value>
inline constexpr bool lists_elements = false;
template <class Element>
inline constexpr bool lists_elements<std::initializer_list<Element>> = true;

/// Matches `std::reference_wrapper` and similar classes, without including the large header
/// <functional>.
template <class Value>
concept WrapsReference = requires(const Value& value) {
  requires std::is_same_v<decltype(value.get()), typename Value::type&>;
};

template <class Value>
[[nodiscard]] consteval bool refers_elsewhere() noexcept;

/// A value whose bytes refer to other memory, and have no meaning in another process: a pointer, an
/// iterator, a view, a reference, or an array of these. Any class with a unary `*` counts as an
/// iterator, even `std::optional`. Members of structures are not examined.
template <class Value>
concept RefersElsewhere = refers_elsewhere<Value>();

template <class Value>
struct array_element {
  using type = void;
};
template <class Element, std::size_t Size>
struct array_element<Element[Size]> {
  using type = Element;
};
template <class Element, std::size_t Size>
struct array_element<std::array<Element, Size>> {
  using type = Element;
};

template <class Value>
consteval bool refers_elsewhere() noexcept {
  if constexpr (!std::is_void_v<typename array_element<Value>::type>)
    return refers_elsewhere<std::remove_cv_t<typename array_element<Value>::type>>();
  else if constexpr (std::is_pointer_v<Value> || std::is_member_pointer_v<Value> ||
                     std::is_null_pointer_v<Value>)
    return true;
  else if constexpr (std::is_class_v<Value>)
    return lists_elements<Value> || WrapsReference<Value> ||
           std::ranges::enable_borrowed_range<Value> || std::ranges::enable_view<Value> ||
           requires(const Value& value) { *value; };
  else
    return false;
}

}  // namespace verbspp::detail
