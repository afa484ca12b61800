// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace softverbs {

/// What a verb returns that gives null and sets errno when it fails.
template <typename Result>
Result* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace softverbs
