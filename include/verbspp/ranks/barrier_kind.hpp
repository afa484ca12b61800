// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// How ranks wait for each other. All ranks of one barrier have to choose the same.
enum class barrier_kind : std::uint8_t {
  by_size,        ///< dissemination up to 64 ranks, a tree above
  centralized,    ///< all tell the first, which tells all: 2 (n - 1) messages, n - 1 of one rank
  binary_tree,    ///< up and down a tree: 2 (n - 1) messages, in 2 log n steps
  dissemination,  ///< each tells a rank twice as far away in each of log n steps: n log n messages
};

[[nodiscard]] const char* to_string(barrier_kind kind) noexcept;

}  // namespace verbspp
