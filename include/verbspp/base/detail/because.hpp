// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <type_traits>

namespace verbspp::detail {

/// A condition of a concept together with the sentence that the compiler shows when it is false.
///
/// g++ and clang print the text of the atomic constraint that failed; so the reason stands inside
/// the constraint.
[[nodiscard]] constexpr bool because(bool condition, const char* /*sentence*/) noexcept {
  return condition;
}

/// What may hold a value or not: a result, an optional.
template <class Type>
concept MayLackValue = requires(const Type& outcome) {
  outcome.has_value();
  outcome.value();
};

}  // namespace verbspp::detail

// What is there to be refused in words. An argument in braces that does not fit says nothing of
// what is wrong inside it; so the types of an operation's members convert from what is mistaken for
// them, too, by a constructor that cannot be used and has the sentence in its declaration.

/// Ends the declaration of a function that is there to be refused in words, where `condition` is
/// true, which has to depend on a template argument. To concepts and traits it is not there.
///
/// Both compilers show the sentence in the first line. clang says of a deleted function only that
/// it is one; but what is unavailable is no function to its constraints, either.
#if defined(__clang__)
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(condition) __attribute__((unavailable(sentence)))
#else
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(::verbspp::detail::because((condition), sentence)) = delete
#endif

/// Declares that `Class` has no default constructor, and why: what is missing where a member of an
/// operation was not given. clang would take one that is unavailable for a constructor.
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

/// Ends the declaration of `name(...)`, the overload that is taken when nothing else fits: for
/// members that do not exist, or in another order.
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
