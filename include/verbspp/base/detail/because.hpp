// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <type_traits>

namespace verbspp::detail {

/// Returns `condition`. A call of this function in a constraint explains to the user why code does
/// not compile: g++ and clang print the source text of the atomic constraint that failed, which
/// contains the sentence.
[[nodiscard]] constexpr bool because(bool condition, const char* /*sentence*/) noexcept {
  return condition;
}

/// A type whose objects may or may not hold a value, such as a result or an optional.
template <class Type>
concept MayLackValue = requires(const Type& outcome) {
  outcome.has_value();
  outcome.value();
};

}  // namespace verbspp::detail

// The macros below declare functions that cannot be called: a call does not compile, and the
// diagnostic shows a message. If a braced argument such as `{.elements = x}` does not match the
// parameter, compilers do not report which part of it is wrong. The types of an operation's members
// therefore have constructors for arguments that are often passed by mistake. Such a constructor
// cannot be used, and its declaration contains the message.

/// Completes the declaration of a function that cannot be called. The function exists only if
/// `condition` is true; `condition` must depend on a template argument. A call does not compile,
/// and the diagnostic shows the sentence. Concepts and traits treat the function as missing.
///
/// With clang, the function is marked `unavailable`, because clang prints the text of that
/// attribute in the first line of the diagnostic. For a deleted function, it prints only that the
/// function is deleted.
#if defined(__clang__)
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(condition) __attribute__((unavailable(sentence)))
#else
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(::verbspp::detail::because((condition), sentence)) = delete
#endif

/// Declares that `Class` has no default constructor. It is meant for the types of operation members
/// that a program must set, such as `.to` of a datagram. If a program omits such a member, its code
/// does not compile, and the diagnostic shows `sentence`, which should specify what to write. The
/// variant for clang uses a constraint that is never satisfied: clang would accept a constructor
/// that is marked `unavailable` as a default constructor.
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

/// Declares the overload `name(...)`, which is chosen if no other overload fits because the braced
/// argument names a member that does not exist, or names the members in the wrong order. Such a
/// call does not compile, and the diagnostic shows the sentence.
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
