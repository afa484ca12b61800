// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <type_traits>

namespace verbspp::detail {

/// A condition of a concept, together with the sentence that the compiler shows if it is false.
///
/// g++ and clang print the text of the atomic constraint that failed, so the reason is part of the
/// constraint.
[[nodiscard]] constexpr bool because(bool condition, const char* /*sentence*/) noexcept {
  return condition;
}

/// A type that holds a value or none, such as a result or an optional.
template <class Type>
concept MayLackValue = requires(const Type& outcome) {
  outcome.has_value();
  outcome.value();
};

}  // namespace verbspp::detail

// Declarations that exist only to be rejected with a message. If a braced argument does not fit,
// the compiler does not report what is wrong inside the braces. The types of an operation's members
// therefore also convert from types that are often mistaken for them, by a constructor that cannot
// be used and whose declaration contains the message.

/// Ends the declaration of a function that is rejected with a message if `condition`, which must
/// depend on a template argument, is true. Concepts and traits do not see the function.
///
/// Both compilers show the sentence in their first line. clang reports only that a deleted function
/// is deleted, but shows the sentence of an unavailable one, which does not exist for constraints
/// either.
#if defined(__clang__)
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(condition) __attribute__((unavailable(sentence)))
#else
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(::verbspp::detail::because((condition), sentence)) = delete
#endif

/// Declares that `Class` has no default constructor, and why: the sentence names the member of an
/// operation that was not given. In clang, an unavailable constructor would still count as one.
#if defined(__clang__)
#define VERBSPP_DETAIL_NO_DEFAULT(Class, sentence) \
  template <class Nothing = void>                  \
  Class()                                          \
    requires(::verbspp::detail::because(!std::is_void_v<Nothing>, sentence))
#else
#define VERBSPP_DETAIL_NO_DEFAULT(Class, sentence)                          \
  template <class Nothing = void>                                           \
  Class()                                                                   \
    requires(::verbspp::detail::because(std::is_void_v<Nothing>, sentence)) \
  = delete
#endif

/// Ends the declaration of `name(...)`, the overload that is chosen if no other one fits, for
/// members that do not exist or are in the wrong order.
#if defined(__clang__)
#define VERBSPP_DETAIL_OTHERWISE(name, condition, sentence)            \
  __attribute__((unavailable(sentence))) void name(...) const noexcept \
    requires(condition)
#else
#define VERBSPP_DETAIL_OTHERWISE(name, condition, sentence)             \
  void name(...) const noexcept                                         \
    requires((condition) && ::verbspp::detail::because(true, sentence)) \
  = delete
#endif
