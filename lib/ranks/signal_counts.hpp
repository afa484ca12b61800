// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The counts of the steps that a rank has had with another one, which has their mirror image.
///
/// The n-th signal of a pair of ranks writes n. Both ends know which signals and values a step
/// takes, and count them even if the step fails. So a rank that is late to a step that others have
/// aborted finds the signals that it missed, or the next signal makes up for them, and nothing has
/// to be reset. The other rank reads the count of joined steps to learn whether this one has
/// arrived.
struct signal_counts {
  std::uint64_t signaled = 0;
  std::uint64_t awaited = 0;
  std::uint64_t joined = 0;    ///< steps
  std::uint64_t given = 0;     ///< values to it
  std::uint64_t expected = 0;  ///< values from it
  std::uint64_t released = 0;  ///< values whose places it may write again

  /// All counts that the other rank needs, with the world's own count.
  using encoded = std::array<std::uint64_t, 6>;
  [[nodiscard]] constexpr encoded encode(std::uint64_t all_gathers) const noexcept {
    return {signaled, awaited, joined, given, expected, all_gathers};
  }
  /// Makes both ends continue from equal counts, the higher ones. \pre nothing is in flight between
  /// them
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
