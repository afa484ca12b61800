// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/group/peer_list.hpp>
#include <verbspp/ranks/barrier_kind.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

[[nodiscard]] constexpr barrier_kind kind_for(barrier_kind kind, std::size_t ranks) noexcept {
  if (kind != barrier_kind::by_size) return kind;
  return ranks <= 64 ? barrier_kind::dissemination : barrier_kind::binary_tree;
}

/// Performs the part of `rank` in a barrier of this kind: calls `signal` and `await` with the
/// numbers of the other ranks, in the order in which `rank` signals and awaits them.
/// \pre the kind is not `by_size`, and the rank is in the list
template <class Signal, class Await>
void run_barrier(barrier_kind kind, const peer_list& ranks, std::uint32_t rank, Signal signal,
                 Await await) noexcept {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t* const all = ranks.begin();
  const auto own = static_cast<std::uint32_t>(std::find(all, all + count, rank) - all);
  if (kind == barrier_kind::dissemination) {
    for (std::uint64_t distance = 1; distance < count; distance *= 2) {
      signal(all[(own + distance) % count]);
      await(all[(own + count - distance) % count]);
    }
    return;
  }
  // A centralized barrier is a tree with one level.
  const bool is_star = kind == barrier_kind::centralized;
  const std::uint64_t first = is_star ? (own == 0 ? 1 : count) : 2 * std::uint64_t{own} + 1;
  const std::uint64_t end = std::min<std::uint64_t>(is_star ? count : first + 2, count);
  for (std::uint64_t child = first; child < end; ++child) await(all[child]);
  if (own != 0) {
    const std::uint32_t parent = all[is_star ? 0 : (own - 1) / 2];
    signal(parent);
    await(parent);
  }
  for (std::uint64_t child = first; child < end; ++child) signal(all[child]);
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
