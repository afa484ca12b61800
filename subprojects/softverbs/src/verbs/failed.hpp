// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace softverbs {

/// Returns null and sets errno, as many verbs do when they fail.
template <typename Result>
Result* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace softverbs
