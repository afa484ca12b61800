// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <concepts>
#include <type_traits>

namespace verbspp::detail {

/// A number to count or to name with.
template <class Type>
concept Number = std::integral<Type> &&
                 because(!std::is_same_v<Type, bool> && !std::is_same_v<Type, char> &&
                             !std::is_same_v<Type, wchar_t> && !std::is_same_v<Type, char8_t> &&
                             !std::is_same_v<Type, char16_t> && !std::is_same_v<Type, char32_t>,
                         "a truth value or a character is no number: write the number");

/// The value of a constant that was passed on by reference: compilers show the call that reads what
/// is none, and so the sentence, but say nothing of a call that already its argument keeps from
/// being a constant.
template <class Value>
[[nodiscard]] constexpr Value literal(const Value& value, const char* /*sentence*/) noexcept {
  return value;
}

}  // namespace verbspp::detail

/// The value of `constant` in a constructor that takes literals only.
#define VERBSPP_DETAIL_LITERAL(constant)                                                        \
  ::verbspp::detail::literal(constant,                                                          \
                             "a value that is known only at run time has to be checked: write " \
                             "::from(value)")

/// Declares that no truth value and no character becomes a `Class`.
#define VERBSPP_DETAIL_NUMBERS_ONLY(Class)                                                     \
  template <class Other>                                                                       \
  Class(Other) VERBSPP_DETAIL_REFUSED(                                                         \
      (std::is_integral_v<Other> && !::verbspp::detail::Number<Other>),                        \
      "a truth value or a character is no number: write the number, or ::from(value) for one " \
      "that is known only at run time")
