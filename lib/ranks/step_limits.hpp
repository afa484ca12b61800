// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/wait_limit.hpp>

#include <algorithm>
#include <chrono>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The time limit for a step. A step has up to three parts: a rank waits for the others; after a
/// failure, it reads their counts; and then it writes the cause to them. None of these parts lasts
/// beyond the limit, except that the second part always has at least `shortest_answer`.
///
/// A stop token ends only the first part.
class step_limits {
 public:
  using time_point = wait_limit::time_point;
  /// The maximum time to wait for answers, which the other ranks' devices send.
  static constexpr auto longest_answer = std::chrono::seconds(1);
  /// The minimum time to wait for answers, even after the limit. Most of them arrive within
  /// microseconds.
  static constexpr auto shortest_answer = std::chrono::milliseconds(10);
  /// The maximum time to wait until the other ranks' devices have acknowledged the writes of the
  /// cause. Writes that have not been acknowledged by then still arrive, unless this rank leaves.
  static constexpr auto longest_news = std::chrono::milliseconds(200);

  /// \pre `whole` lives as long as this object
  explicit step_limits(const wait_limit& whole,
                       time_point now = std::chrono::steady_clock::now()) noexcept
      : end_(whole.deadline()), last_answer_(end_), whole_(whole) {
    if (end_ == (time_point::max)() || end_ <= now) return;
    const auto kept =
        std::min<time_point::duration>((end_ - now) / 4, longest_answer + longest_news);
    last_answer_ = end_ - kept / 6;
    waiting_ = whole_.no_later_than(end_ - kept);
  }
  step_limits(const step_limits&) = delete;
  step_limits& operator=(const step_limits&) = delete;

  /// Moves the time limits of the second and third part to `at`, if they are later.
  void end_by(time_point at) noexcept {
    end_ = std::min(end_, at);
    last_answer_ = std::min(last_answer_, at);
  }

  [[nodiscard]] const wait_limit& waiting() const noexcept { return waiting_; }
  [[nodiscard]] time_point answers_until(time_point now) const noexcept {
    return std::max(std::min(last_answer_, now + longest_answer), now + shortest_answer);
  }
  [[nodiscard]] time_point news_until(time_point now) const noexcept {
    return std::min(end_, now + longest_news);
  }

 private:
  time_point end_;
  time_point last_answer_;
  const wait_limit& whole_;
  wait_limit waiting_ = whole_;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
