// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

/// Returns how many descriptors this process has open, including the one that is used for counting.
inline std::ptrdiff_t descriptors_open() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}
