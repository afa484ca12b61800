// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The counts of the signals, steps and values that a rank has exchanged with another rank. The
/// other rank has the same counts with the directions reversed.
///
/// The n-th signal from one rank to another writes the number n. Both ends know which signals and
/// values a step requires, and count them even if the step fails. So if a rank is late for a step
/// that others have aborted, it finds the signals that they wrote, or a later signal with a higher
/// number, and nothing has to be reset. The other rank reads the count of joined steps to find out
/// whether this rank has arrived.
struct signal_counts {
  std::uint64_t signaled = 0;
  std::uint64_t awaited = 0;
  std::uint64_t joined = 0;    ///< steps that this rank has joined with the other rank
  std::uint64_t given = 0;     ///< values for the other rank
  std::uint64_t expected = 0;  ///< values from the other rank
  std::uint64_t released = 0;  ///< received values that the other rank may overwrite

  /// All counts that the other rank needs, and the world's count of `all_gather` steps.
  using encoded = std::array<std::uint64_t, 6>;
  [[nodiscard]] constexpr encoded encode(std::uint64_t all_gathers) const noexcept {
    return {signaled, awaited, joined, given, expected, all_gathers};
  }
  /// Sets each count to the higher one of the two ends' counts, so that both continue from the same
  /// counts. The values so far count as released.
  /// \pre nothing is in flight between the two ranks
  constexpr void agree(const encoded& theirs, std::uint64_t& all_gathers) noexcept {
    signaled = std::max(signaled, theirs[1]);
    awaited = std::max(awaited, theirs[0]);
    joined = std::max(joined, theirs[2]);
    given = std::max(given, theirs[4]);
    expected = std::max(expected, theirs[3]);
    released = expected;
    all_gathers = std::max(all_gathers, theirs[5]);
  }
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
