// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cstdint>

namespace softverbs {

/// A time on the monotonic clock, or a duration, in nanoseconds. A deadline of 0 means never.
using nanoseconds = std::int64_t;

inline nanoseconds now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace softverbs
