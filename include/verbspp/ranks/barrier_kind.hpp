// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The algorithm of a barrier. All ranks of one barrier have to choose the same one.
enum class barrier_kind : std::uint8_t {
  by_size,      ///< dissemination up to 64 ranks, a tree above
  centralized,  ///< all signal the first rank, which answers: 2 (n - 1) messages, half by one rank
  binary_tree,  ///< up and down a tree: 2 (n - 1) messages, in 2 log n steps
  dissemination,  ///< signals a rank twice as far away in each of log n steps: n log n messages
};

[[nodiscard]] const char* to_string(barrier_kind kind) noexcept;

}  // namespace verbspp
