// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <concepts>
#include <type_traits>

namespace verbspp::detail {

/// An integer that counts or identifies something, as opposed to a `bool` or a character.
template <class Type>
concept Number = std::integral<Type> &&
                 because(!std::is_same_v<Type, bool> && !std::is_same_v<Type, char> &&
                             !std::is_same_v<Type, wchar_t> && !std::is_same_v<Type, char8_t> &&
                             !std::is_same_v<Type, char16_t> && !std::is_same_v<Type, char32_t>,
                         "a bool or a character is not a number: write the number");

/// Returns `value`, which must be a constant. If it is not, the compiler's diagnostic quotes this
/// call with its arguments, and so shows `sentence` to the user. This works only because `value` is
/// passed by reference: a value that is passed by value is read before the call, and the diagnostic
/// would not mention the call.
template <class Value>
[[nodiscard]] constexpr Value literal(const Value& value, const char* /*sentence*/) noexcept {
  return value;
}

}  // namespace verbspp::detail

/// Evaluates to `constant`, in a constructor that accepts only literals.
#define VERBSPP_DETAIL_LITERAL(constant)                                                    \
  ::verbspp::detail::literal(constant,                                                      \
                             "a value that is known only at run time must be checked: use " \
                             "from(), as in retry_count::from(value)")

/// Disables conversion to `Class` from `bool` and from character types.
#define VERBSPP_DETAIL_NUMBERS_ONLY(Class)                                               \
  template <class Other>                                                                 \
  Class(Other) VERBSPP_DETAIL_REFUSED(                                                   \
      (std::is_integral_v<Other> && !::verbspp::detail::Number<Other>),                  \
      "a bool or a character is not a number: write the number or, if it is known only " \
      "at run time, use from(), as in retry_count::from(value)")
