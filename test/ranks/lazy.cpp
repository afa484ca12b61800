// SPDX-License-Identifier: Apache-2.0
/// \file
/// Worlds whose ranks are connected at their first use.

#include "worlds.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// So many ranks in one process, of which none is connected to another yet.
struct lazy_worlds {
  explicit lazy_worlds(std::uint32_t count) {
    std::vector<local_bootstrap> launched = local_bootstrap::create(count);
    std::vector<std::optional<world>> made(count);
    on_threads(count, [&](std::uint32_t rank) {
      made[rank].emplace(must(
          world::join_lazily(std::move(launched[rank]), bed.domain.build_channel(), patience)));
    });
    for (auto& each : made) ranks.push_back(std::move(*each));
  }

  testbed bed;
  std::vector<world> ranks{};
};

[[nodiscard]] std::vector<std::uint32_t> connected_of(world& of) {
  const peer_list all = of.peers().connected();
  return {all.begin(), all.end()};
}

[[nodiscard]] error_kind kind_of(const peer_result& failed) {
  return static_cast<error>(failed.result.assume_error()).kind();
}

using cells = registered_buffer<access::local_write | access::remote_write, std::uint64_t>;

/// Memory of each rank, in which each other has a cell.
[[nodiscard]] std::vector<cells> cells_of(const lazy_worlds& all) {
  const auto count = static_cast<std::uint32_t>(all.ranks.size());
  std::vector<cells> made;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    made.push_back(must(cells::allocate(all.bed.domain, 2 * count)));
    made.back()[count + rank] = 100 + rank;
  }
  return made;
}

/// What a rank writes into its cell at that peer.
[[nodiscard]] result<write_operation> into_cell(std::vector<cells>& of, std::uint32_t from,
                                                std::uint32_t to) {
  VERBSPP_TRY(memory, of[to].remote());
  VERBSPP_TRY(place, memory.slice(from * sizeof(std::uint64_t), sizeof(std::uint64_t)));
  VERBSPP_TRY(elements, of[from].gather(of.size() + from, 1));
  return write_operation{.elements = elements, .remote = place};
}

}  // namespace

TEST_CASE("nobody is connected before the first use, and then the two that are concerned") {
  lazy_worlds all(4);
  for (world& each : all.ranks) {
    CHECK(each.size() == 4);
    CHECK(each.peers().size() == 4);
    CHECK(each.peers().all().size() == 4);
    CHECK(connected_of(each) == std::vector<std::uint32_t>{each.rank()});
  }
  CHECK_FALSE(all.ranks[1].name(1).empty());
  CHECK(all.ranks[1].name(3).empty());
  std::atomic<bool> is_done{false};
  on_threads(2, [&](std::uint32_t which) {
    world& mine = all.ranks[which == 0 ? 1 : 3];
    if (which == 0) {
      require(mine.peers().connect({3}, patience).has_value(), "3 to be connected");
      is_done = true;
    }
    // The other one does nothing but answer.
    while (!is_done) mine.serve();
  });
  CHECK(connected_of(all.ranks[1]) == std::vector<std::uint32_t>{1, 3});
  CHECK(connected_of(all.ranks[3]) == std::vector<std::uint32_t>{1, 3});
  CHECK(connected_of(all.ranks[0]) == std::vector<std::uint32_t>{0});
  CHECK_FALSE(all.ranks[1].name(3).empty());
  // Once: the same queue pair afterwards.
  const ibv_qp* const before = all.ranks[1].peers()[3].native_handle();
  CHECK(all.ranks[1].peers().connect({3, 1, 3}, patience));
  CHECK(all.ranks[1].peers()[3].native_handle() == before);
  buffer<> from(all.bed.domain, pattern(64, 1));
  buffer<> into(all.bed.domain, 64);
  auto receive = must(all.ranks[3].peers()[1].post_receive({.elements = into.scatter()}));
  must(all.ranks[1].peers()[3].send({.elements = from.gather()}));
  must(receive.wait(patience));
  CHECK(into.bytes() == from.bytes());
}

TEST_CASE("both ends start at once, many times, and have one connection") {
  for (std::uint32_t round = 0; round < 50; ++round) {
    lazy_worlds all(2);
    buffer<> memory[]{buffer<>(all.bed.domain, 64), buffer<>(all.bed.domain, 64)};
    std::atomic<std::uint32_t> come{0};
    on_threads(2, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      ++come;
      while (come < 2) std::this_thread::yield();
      require(mine.peers().connect({1 - rank}, patience).has_value(), "the other to be connected");
      buffer<> news(all.bed.domain, pattern(64, rank));
      auto receive =
          must(mine.peers()[1 - rank].post_receive({.elements = memory[rank].scatter()}));
      // A receive that is not posted yet is waited for by the device.
      must(mine.peers()[1 - rank].send({.elements = news.gather()}, patience));
      must(receive.wait(patience));
    });
    CHECK(memory[0].bytes() == pattern(64, 1));
    CHECK(memory[1].bytes() == pattern(64, 0));
  }
}

TEST_CASE("scatter, scopes and each step of all connect those that they are with") {
  constexpr std::uint32_t count = 6;
  const auto with =
      [&](const std::function<void(lazy_worlds&, std::vector<cells>&, std::uint32_t)>& use,
          barrier_kind last = barrier_kind::by_size) {
        lazy_worlds all(count);
        std::vector<cells> memory = cells_of(all);
        on_threads(count, [&](std::uint32_t rank) {
          use(all, memory, rank);
          // Whoever is served late is served here.
          require(all.ranks[rank].barrier(patience, last).has_value(), "the last barrier");
        });
      };
  const auto has_all = [&](cells& own) {
    for (std::uint32_t other = 0; other < count; ++other)
      require(own[other] == 100 + other, "the others' values");
  };

  SECTION("barriers") {
    for (const barrier_kind kind :
         {barrier_kind::centralized, barrier_kind::binary_tree, barrier_kind::dissemination}) {
      std::atomic<std::uint32_t> come{0};
      std::atomic<std::uint32_t> connected{0};
      const auto use = [&](lazy_worlds& all, std::vector<cells>& /*memory*/, std::uint32_t rank) {
        for (std::uint32_t round = 1; round <= 3; ++round) {
          ++come;
          require(all.ranks[rank].barrier(patience, kind).has_value(), "the barrier");
          require(come >= round * count, "all to have come");
        }
        connected += static_cast<std::uint32_t>(all.ranks[rank].peers().connected().size());
      };
      with(use, kind);
      // Each to itself; at both ends, the edges of the tree or the star; or those that are 1, 2 and
      // 4 ranks away, on a ring of 6.
      CHECK(connected == count + (kind == barrier_kind::dissemination ? 6U * 4 : 2U * 5));
    }
  }
  SECTION("other steps") {
    static_cast<void>(
        with([&](lazy_worlds& all, std::vector<cells>& /*memory*/, std::uint32_t rank) {
          world& mine = all.ranks[rank];
          require(must(mine.broadcast(rank, 2, patience)) == 2, "the root's");
          require(must(mine.all_reduce(rank, std::plus<>(), patience)) == 15, "the sum");
          require(must(mine.gather(rank, 4, patience)).size() == (rank == 4 ? count : 0), "values");
          require(must(mine.all_gather(rank, patience)).back() == 5, "all values");
        }));
  }
  SECTION("scatter to those who wait in a barrier") {
    with([&](lazy_worlds& all, std::vector<cells>& memory, std::uint32_t rank) {
      world& mine = all.ranks[rank];
      const auto to = [&](std::uint32_t peer) { return into_cell(memory, rank, peer); };
      // Only half of them start.
      if (rank % 2 == 0)
        require(mine.peers().scatter(mine.peers().all(), to, patience).has_value(), "the scatter");
      require(mine.barrier(patience).has_value(), "the barrier");
      for (std::uint32_t other = 0; other < count; other += 2)
        require(memory[rank][other] == 100 + other, "the others' values");
    });
  }
  SECTION("unpolled, and in scopes") {
    with([&](lazy_worlds& all, std::vector<cells>& memory, std::uint32_t rank) {
      world& mine = all.ranks[rank];
      const auto to = [&](std::uint32_t peer) { return into_cell(memory, rank, peer); };
      const std::uint32_t next = (rank + 1) % count;
      auto work = must(mine.peers().post_scatter({next}, to));
      require(work.wait(patience).has_value(), "the work");
      must(mine.peers().scope(
          [&](group_scope& scope) -> group_result<void> {
            VERBSPP_TRYV(scope.post_scatter({rank}, to));
            VERBSPP_TRY(operation, to((rank + 2) % count));
            VERBSPP_TRYV(scope[(rank + 2) % count].post_write(operation));
            for (std::uint32_t far = 3; far < count; ++far)
              VERBSPP_TRYV(scope.post_scatter({(rank + far) % count}, to));
            VERBSPP_TRYV(mine.barrier(scope, patience));
            return success();
          },
          patience));
      has_all(memory[rank]);
    });
  }
}

TEST_CASE("a rank that does not answer is told by its number, and called again at the next use") {
  lazy_worlds all(4);
  std::vector<cells> memory = cells_of(all);
  world& mine = all.ranks[0];
  const auto to = [&](std::uint32_t peer) { return into_cell(memory, 0, peer); };
  std::atomic<bool> is_done{false};
  on_threads(2, [&](std::uint32_t which) {
    if (which == 1) {
      while (!is_done) all.ranks[1].serve();
      return;
    }
    // 1 answers, 2 and 3 do not; 7 is none.
    const group_results reached = mine.peers().connect({1, 2, 0, 3, 7}, 2s);
    require(reached.size() == 5 && reached.failed() == 3, "who failed");
    require(kind_of(reached[1]) == error_kind::timed_out, "2 to be late");
    require(kind_of(reached[3]) == error_kind::timed_out, "3 to be late");
    require(kind_of(reached[4]) == error_kind::invalid_input, "7 to be none");
    const group_results scattered = mine.peers().scatter({1, 2}, to, 2s);
    require(scattered.failed() == 1, "one to fail");
    require(kind_of(scattered[1]) == error_kind::timed_out, "2 to be late");
    const auto scoped = mine.peers().scope(
        [&](group_scope& scope) -> group_result<void> {
          const auto posted = scope.post_scatter({2, 1}, to);
          require(!posted.has_value() && posted.assume_error().peer() == 2U, "2 to be late");
          require(!scope[3].post_send({}).has_value(), "the scope of 3 to refuse");
          return success();
        },
        2s);
    require(scoped.has_value(), "nothing that was posted to fail");
    const group_results barrier = mine.barrier({0, 2}, 300ms);
    require(barrier.size() == 2 && !barrier[1].result.has_value(), "2 to be missing");
    is_done = true;
  });
  CHECK(memory[1][0] == 100);
  CHECK(connected_of(mine) == std::vector<std::uint32_t>{0, 1});
  is_done = false;
  on_threads(2, [&](std::uint32_t which) {
    if (which == 1)
      while (!is_done) all.ranks[2].serve();
    else
      require(mine.peers().scatter({2}, to, patience).has_value(), "the scatter");
    is_done = true;
  });
  CHECK(memory[2][0] == 100);
}

TEST_CASE("a scope takes nothing for a rank that did not answer, which can be called again") {
  lazy_worlds all(2);
  buffer<> memory(all.bed.domain, 64);
  group& peers = all.ranks[0].peers();
  must(peers.scope(
      [&](group_scope& scope) {
        CHECK_FALSE(scope[1].post_receive({.elements = memory.scatter()}));
        CHECK_FALSE(scope.post_gather({1}, [&](std::uint32_t /*peer*/) {
          return receive_operation{.elements = memory.scatter()};
        }));
        CHECK_FALSE(scope[1].post_send({.elements = memory.gather()}));
      },
      300ms));
  std::atomic<bool> is_done{false};
  on_threads(2, [&](std::uint32_t which) {
    if (which == 1) {
      while (!is_done) all.ranks[1].serve();
      return;
    }
    const group_results reached = peers.connect({1}, patience);
    is_done = true;
    require(reached.has_value(), "1 to be connected");
  });
  CHECK(peers[1].is_connected());
}

TEST_CASE("a rank that has left does not answer, and its connections break") {
  lazy_worlds all(3);
  on_threads(3, [&](std::uint32_t rank) {
    if (rank == 2) return;
    require(all.ranks[rank].peers().connect({1 - rank}, patience).has_value(), "the two");
  });
  all.ranks.pop_back();
  const group_results reached = all.ranks[0].peers().connect({2, 1}, 200ms);
  CHECK(reached.failed() == 1);
  CHECK(kind_of(reached[0]) == error_kind::timed_out);
  const group_results barrier = all.ranks[0].barrier(200ms);
  REQUIRE(barrier.size() == 3);
  CHECK_FALSE(barrier[2].result);
}

TEST_CASE("ranks that are connected at their first use are mended, the others left alone") {
  lazy_worlds all(4);
  on_threads(4, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank < 2) require(mine.peers().connect({1 - rank}, patience).has_value(), "0 and 1");
    // 2 has called 3, which did not answer: one end has begun.
    if (rank == 2) require(!mine.peers().connect({3}, 50ms).has_value(), "3 not to answer");
    require(must(mine.exchange(rank, patience)).size() == 4, "all to be there");
  });
  break_link(all.ranks[0], all.ranks[1]);
  on_threads(4, [&](std::uint32_t rank) { must(all.ranks[rank].mend(patience)); });
  CHECK(connected_of(all.ranks[0]) == std::vector<std::uint32_t>{0, 1});
  CHECK(connected_of(all.ranks[3]) == std::vector<std::uint32_t>{2, 3});
  on_threads(4, [&](std::uint32_t rank) {
    for (int round = 0; round < 3; ++round)
      require(must(all.ranks[rank].all_gather(rank, patience)).size() == 4, "the next step");
  });
}

TEST_CASE("with a pool, who waits for messages answers those who connect") {
  const testbed bed;
  std::vector<local_bootstrap> launched = local_bootstrap::create(3);
  std::vector<std::uint32_t> seen;
  on_threads(3, [&](std::uint32_t rank) {
    const message_pool pool = must(message_pool::create(bed.domain, 32, 64));
    world mine = must(world::join_lazily(std::move(launched[rank]), bed.domain.build_channel(),
                                         pool, patience, {.receives = 8}));
    buffer<> news(bed.domain, pattern(8, rank));
    if (rank != 0) {
      require(mine.peers().multicast({0}, {.elements = news.gather()}, patience).has_value(),
              "the message");
    } else {
      std::array<arrival, 4> slots{};
      while (seen.size() < 2)
        for (const arrival& each : must(mine.peers().wait(slots, patience)))
          if (each.message) seen.push_back(*mine.peers().peer_of(each.source));
    }
    require(mine.barrier(patience).has_value(), "the last barrier");
  });
  std::ranges::sort(seen);
  CHECK(seen == std::vector<std::uint32_t>{1, 2});
}
