// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

namespace verbspp::detail {

/// A condition of a concept together with the sentence that the compiler shows when it is false.
///
/// g++ and clang print the text of the atomic constraint that failed; so the reason stands inside
/// the constraint.
[[nodiscard]] constexpr bool because(bool condition, const char* /*sentence*/) noexcept {
  return condition;
}

}  // namespace verbspp::detail

/// Ends the declaration of an overload that is there to be refused in words: what would be called
/// where `condition`, which has to depend on a template argument, is true.
///
/// clang shows the constraints of every candidate. g++ shows none of them for an argument in braces
/// or an object of the wrong value category, but it shows those of a deleted function that is
/// picked.
#if defined(__clang__)
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(::verbspp::detail::because((condition) && false, sentence))
#else
#define VERBSPP_DETAIL_REFUSED(condition, sentence) \
  requires(::verbspp::detail::because(condition, sentence))
#endif
