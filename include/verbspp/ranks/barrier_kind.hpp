// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The algorithm of a barrier. All ranks that take part in a barrier have to choose the same
/// algorithm.
enum class barrier_kind : std::uint8_t {
  by_size,      ///< dissemination for up to 64 ranks, a binary tree for more
  centralized,  ///< the other ranks signal the first one, which answers: 2 (n - 1) messages
  binary_tree,  ///< signals go up and down a tree: 2 (n - 1) messages, in 2 log n rounds
  /// Each rank signals the ranks at distances 1, 2, 4 and so on: n log n messages, in log n rounds.
  dissemination,
};

[[nodiscard]] const char* to_string(barrier_kind kind) noexcept;

}  // namespace verbspp
