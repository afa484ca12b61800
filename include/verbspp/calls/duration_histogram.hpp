// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>

namespace verbspp {

/// A histogram of durations, which counts the durations in ranges. From 4 ns on, a range ends at
/// most a quarter above its beginning, so a quantile is at most a quarter too long there, except in
/// the last range.
///
/// A plain value of 1,280 bytes.
class duration_histogram {
 public:
  /// The number of ranges. The last one begins after 32 minutes, and also counts all durations
  /// above it.
  static constexpr std::size_t ranges = 160;

  /// The end of a range. All durations in the range are shorter, except in the last range.
  [[nodiscard]] static constexpr std::chrono::nanoseconds end_of(std::size_t range) noexcept {
    return std::chrono::nanoseconds(begin_of(range + 1));
  }
  /// The range that contains the duration. A negative duration counts as 0.
  [[nodiscard]] static constexpr std::size_t range_of(std::chrono::nanoseconds duration) noexcept {
    const auto length = duration.count() > 0 ? static_cast<std::uint64_t>(duration.count()) : 0;
    if (length < 4) return length;
    const auto octave = static_cast<std::size_t>(std::bit_width(length)) - 3;
    const std::size_t range = octave * 4 + (length >> octave);
    return range < ranges ? range : ranges - 1;
  }

  /// The number of durations in one range.
  [[nodiscard]] std::uint64_t count(std::size_t range) const noexcept { return counts_[range]; }
  /// The number of all durations.
  [[nodiscard]] std::uint64_t count() const noexcept;
  /// Returns a duration below which at least this share of all durations lies: the end of a range.
  /// Durations above the end of the last range count as if they were below it. 0 if there are no
  /// durations.
  /// \param share 0 to 1; for example 0.99 for the 99th percentile
  [[nodiscard]] std::chrono::nanoseconds quantile(double share) const noexcept;

  void add(std::chrono::nanoseconds duration) noexcept { ++counts_[range_of(duration)]; }
  /// Adds the durations of another histogram.
  void add(const duration_histogram& other) noexcept;
  /// Used by the library only: the counter of a range.
  [[nodiscard]] std::uint64_t& counter(std::size_t range) noexcept { return counts_[range]; }

  friend std::ostream& operator<<(std::ostream& out, const duration_histogram& durations);

 private:
  [[nodiscard]] static constexpr std::int64_t begin_of(std::size_t range) noexcept {
    if (range < 8) return static_cast<std::int64_t>(range);
    return static_cast<std::int64_t>(range % 4 + 4) << (range / 4 - 1);
  }

  std::array<std::uint64_t, ranges> counts_{};
};

}  // namespace verbspp
