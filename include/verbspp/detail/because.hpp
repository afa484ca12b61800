// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/config.hpp>

namespace verbspp::detail {

/// A condition of a concept together with the sentence that the compiler shows when it is false.
///
/// g++ and clang print the text of the atomic constraint that failed; so the reason stands inside
/// the constraint.
[[nodiscard]] constexpr bool because(bool condition, const char* /*sentence*/) noexcept {
  return condition;
}

}  // namespace verbspp::detail
