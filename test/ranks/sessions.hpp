// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the tests of barrier sessions: one thread starts and polls several of them.
#pragma once

#include "worlds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace verbspp::test {

using numbers = std::vector<std::uint32_t>;
using sessions = std::vector<std::optional<barrier_session>>;

inline constexpr std::array all_kinds{barrier_kind::centralized, barrier_kind::binary_tree,
                                      barrier_kind::dissemination, barrier_kind::by_size};

/// Starts a barrier of all ranks, but only at the ranks in `on`.
[[nodiscard]] inline sessions start(std::vector<world>& ranks, const numbers& on,
                                    const wait_limit& limit,
                                    barrier_kind kind = barrier_kind::by_size) {
  sessions started(ranks.size());
  for (const std::uint32_t rank : on)
    started[rank].emplace(must(ranks[rank].start_barrier(limit, kind)));
  return started;
}

/// Advances each session once. \returns the number of sessions that are done
[[nodiscard]] inline std::size_t poll_each(sessions& all) {
  return static_cast<std::size_t>(std::ranges::count_if(
      all, [](auto& each) { return each.has_value() && must(each->poll()); }));
}

/// Advances the sessions in turn until all of them are done. \returns the results, by rank
[[nodiscard]] inline std::vector<std::optional<group_results>> finish(
    sessions& all, std::chrono::nanoseconds limit = patience) {
  const std::ptrdiff_t count =
      std::ranges::count_if(all, [](const auto& each) { return each.has_value(); });
  wait_until([&] { return poll_each(all) == static_cast<std::size_t>(count); },
             "the end of the barriers", limit);
  std::vector<std::optional<group_results>> results(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank]) results[rank].emplace(std::move(*all[rank]).finish());
  return results;
}

/// Checks that a barrier of all ranks succeeds.
inline void check_next_barrier(std::vector<world>& ranks) {
  numbers all;
  for (const world& each : ranks) all.push_back(each.rank());
  sessions next = start(ranks, all, patience);
  for (const auto& result : finish(next)) CHECK(result->has_value());
}

/// Advances the sessions for a while, and checks that none of them finishes.
inline void check_none_is_done(sessions& all) {
  const auto end = clock::now() + std::chrono::milliseconds(20);
  for (int round = 0; round < 20 || clock::now() < end; ++round) REQUIRE(poll_each(all) == 0);
}

inline void check_blamed(const std::optional<group_results>& result, const numbers& ranks,
                         error_kind kind) {
  REQUIRE(result);
  REQUIRE(result->has_error());
  INFO(result->message());
  CHECK(blamed(*result) == ranks);
  CHECK(kind_of(*result) == kind);
}

}  // namespace verbspp::test
