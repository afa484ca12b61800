// SPDX-License-Identifier: Apache-2.0
/// \file
/// Programs that change the channel to a rank: they replace it, connect it to a different
/// peer, or remove it.

#include "worlds.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("steps do not use a channel that the program has put under a rank's number", "[long]") {
  // In one case, the program replaces the channel before its first use, and in the other case
  // afterwards.
  for (const bool is_connected_before : {false, true}) {
    lazy_worlds all(4);
    const auto on_ranks = [&](const std::vector<std::uint32_t>& ranks, const auto& function) {
      on_threads(4, [&](std::uint32_t rank) {
        if (std::ranges::count(ranks, rank) == 1) function(all.ranks[rank]);
      });
    };
    if (is_connected_before)
      on_ranks({0, 1, 2, 3}, [](world& mine) {
        require(mine.barrier(patience).has_value(), "the barrier failed");
      });
    for (const std::uint32_t rank : {0U, 2U}) {
      static_cast<void>(all.ranks[rank].peers().remove(2 - rank));
      must(all.ranks[rank].peers().put(
          2 - rank,
          channel(
              must(all.bed.domain.build_channel().hub(all.ranks[rank].peers().hub()).build()))));
    }
    channel& here = all.ranks[0].peers()[2];
    channel& there = all.ranks[2].peers()[0];
    must(here.handshake(there.endpoint()));
    must(there.handshake(here.endpoint()));

    on_ranks({0, 1, 3}, [](world& mine) {
      require(mine.barrier({0, 1, 3}, patience).has_value(),
              "the barrier of ranks 0, 1 and 3 failed");
    });
    on_ranks({0, 1, 3}, [](world& mine) {
      const group_results none = mine.barrier({0, 1, 2, 3}, 200ms, barrier_kind::binary_tree);
      require(!none.has_value(), "a barrier succeeded without rank 2");
      if (mine.rank() != 0) return;
      const auto* const with_2 = std::ranges::find(none, 2U, &peer_result::peer);
      require(with_2 != none.end() && !with_2->result.has_value(), "rank 2 is not blamed");
      require(kind_of(*with_2) == error_kind::not_connected, "the error kind is wrong");
    });
    // Rank 0 waits for rank 3 and then for rank 1. It reports the loss of rank 3 to rank 1.
    {
      const world leaves = std::move(all.ranks[3]);
    }
    on_ranks({0, 1}, [](world& mine) {
      const group_results none =
          mine.barrier({0, 3, 1, 2}, 3 * patience, barrier_kind::binary_tree);
      require(blamed(none) == std::vector<std::uint32_t>{3}, "rank 3 is not blamed");
    });
    CHECK(here.is_connected());
    CHECK(there.is_connected());
  }
}

TEST_CASE("steps send nothing over a channel to a process that is not a rank") {
  local_worlds all(4);
  // The ranks' memory is not registered in the stranger's protection domain, so the channel would
  // break if a step accessed that memory through it.
  const testbed elsewhere;
  channel stranger(must(elsewhere.domain.build_channel().build()));
  world& mine = all.ranks[0];
  channel& renewed = mine.peers()[2];
  must(renewed.renew());
  must(renewed.handshake(stranger.endpoint()));
  must(stranger.handshake(renewed.endpoint()));
  const auto are_connected = [&] {
    stranger.poll();
    renewed.poll();
    return stranger.is_connected() && renewed.is_connected();
  };

  const group_results none = mine.barrier({0, 2}, patience);
  CHECK(blamed(none) == numbers{2});
  CHECK(kind_of(none[1]) == error_kind::not_connected);
  CHECK(are_connected());

  // Rank 0 waits for rank 3, and then for rank 1. Even when both are late, rank 0 sends neither
  // questions nor reports to the stranger.
  CHECK(blamed(mine.barrier({0, 3, 1, 2}, 50ms, barrier_kind::binary_tree)) == numbers{3, 1});
  CHECK(are_connected());
}

TEST_CASE("a barrier of all ranks fails if the program has removed a rank's channel") {
  local_worlds all(2);
  world& mine = all.ranks[0];
  const channel removed = mine.peers().remove(1);
  const auto check = [](const group_results& result) {
    CHECK(blamed(result) == numbers{1});
    CHECK(static_cast<error>(result.error()) == error_kind::not_connected);
  };
  check(mine.barrier(patience));
  static_cast<void>(
      mine.peers().manual_scope([&](group_scope& scope) { check(mine.barrier(scope, patience)); }));
  check(must(mine.start_barrier(patience)).run());
}

TEST_CASE("a channel taken out of a world outlives it even with requests of the world in flight",
          "[long]") {
  local_worlds all(3);
  auto memory = must(registered_buffer<>::allocate(all.bed.domain, 64));
  std::optional<world> mine(std::move(all.ranks[0]));
  // This send has not been received yet, so the questions and reports that the world sends to rank
  // 1 wait behind it.
  auto waits = must(mine->peers()[1].post_send({.elements = must(memory.gather(0, 8))}));
  for (int round = 0; round < 2; ++round)
    CHECK(blamed(mine->barrier({0, 2, 1}, 50ms, barrier_kind::binary_tree)) == numbers{2});

  channel kept = mine->peers().remove(1);
  mine.reset();
  channel& there = all.ranks[1].peers()[0];
  must(there.receive({.elements = must(memory.scatter(8, 8))}, patience));
  must(waits.wait(patience));
  // Another send is posted after these requests.
  auto receive = must(there.post_receive({.elements = must(memory.scatter(16, 8))}));
  const auto sent = kept.send({.elements = must(memory.gather(0, 8))}, patience);
  INFO((sent.has_value() ? "" : sent.error().message()));
  CHECK(sent.has_value());
  CHECK(kept.is_connected());
  CHECK(receive.wait(patience).has_value());
}
