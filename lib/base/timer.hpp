// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/timerfd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

namespace verbspp::detail {

/// Sets a timerfd of the monotonic clock, so that it becomes readable at the given time. The
/// maximum time point disarms the timer.
inline void set_timer(int timer, std::chrono::steady_clock::time_point at) noexcept {
  itimerspec set{};
  if (at != (std::chrono::steady_clock::time_point::max)()) {
    // Zero would disarm the timer.
    const auto since =
        std::max(std::chrono::nanoseconds(1), std::chrono::nanoseconds(at.time_since_epoch()));
    set.it_value.tv_sec = static_cast<std::time_t>(since.count() / 1'000'000'000);
    set.it_value.tv_nsec = static_cast<long>(since.count() % 1'000'000'000);
  }
  ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &set, nullptr);
}

}  // namespace verbspp::detail
