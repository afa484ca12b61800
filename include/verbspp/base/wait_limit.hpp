// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>

namespace verbspp {

/// Until when a wait goes on: a time point of the steady clock, or a duration from now.
///
///     queue.wait(slots, std::chrono::milliseconds(100));
///     queue.wait(slots, deadline);                // for several waits with one end
///     queue.wait(slots, wait_limit::forever());
///
/// What has passed already, and a duration that is not above zero, make a wait a poll. A time point
/// at its maximum, and durations above a hundred years, are for ever: nothing overflows.
///
/// A plain value; a duration counts from the moment that the limit is made from it.
class wait_limit {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  constexpr wait_limit(time_point at) noexcept : at_(at) {}
  template <class Number, class Period>
  wait_limit(std::chrono::duration<Number, Period> length) noexcept : at_(after(length)) {}

  [[nodiscard]] static constexpr wait_limit forever() noexcept { return (time_point::max)(); }

  [[nodiscard]] constexpr bool is_forever() const noexcept { return at_ == (time_point::max)(); }
  [[nodiscard]] bool has_passed() const noexcept {
    return !is_forever() && std::chrono::steady_clock::now() >= at_;
  }
  /// When the wait ends; `time_point::max()` if it never does.
  [[nodiscard]] constexpr time_point deadline() const noexcept { return at_; }

  friend constexpr bool operator==(const wait_limit&, const wait_limit&) noexcept = default;

 private:
  template <class Number, class Period>
  [[nodiscard]] static time_point after(std::chrono::duration<Number, Period> length) noexcept {
    // Compared as floating point numbers, which have room for every duration; a NaN is not above.
    using seconds = std::chrono::duration<double>;
    constexpr seconds hundred_years = std::chrono::hours(24) * 36525;
    const seconds approximate = length;
    if (!(approximate > seconds::zero())) return (time_point::min)();
    if (approximate > hundred_years) return (time_point::max)();
    // Not earlier than asked for, where the duration is finer than the clock.
    return std::chrono::steady_clock::now() + std::chrono::ceil<time_point::duration>(length);
  }

  time_point at_;
};

}  // namespace verbspp
