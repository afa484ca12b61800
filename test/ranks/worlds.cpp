// SPDX-License-Identifier: Apache-2.0
#include "worlds.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

constexpr std::array all_kinds{barrier_kind::centralized, barrier_kind::binary_tree,
                               barrier_kind::dissemination, barrier_kind::by_size};

/// Returns how many barriers of each kind to run: 30, or the value of VERBSPP_TEST_BARRIERS.
[[nodiscard]] std::uint32_t rounds_of_barriers() {
  const char* const given = std::getenv("VERBSPP_TEST_BARRIERS");
  return given != nullptr ? static_cast<std::uint32_t>(std::stoul(given)) : 30;
}

/// Returns a handle to memory that has been deregistered, so that requests that access it fail.
[[nodiscard]] auto memory_that_is_gone(const local_worlds& all) {
  return must(buffer<>(all.bed.domain, 64).region().remote());
}

}  // namespace

TEST_CASE("the ranks of a world have each other's names and can communicate") {
  for (const std::uint32_t count : {1U, 2U, 5U}) {
    local_worlds all(count);
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      world& mine = all.ranks[rank];
      CHECK(mine.rank() == rank);
      CHECK(mine.size() == count);
      CHECK(mine.peers().connected().size() == count);
      for (std::uint32_t other = 0; other < count; ++other)
        CHECK(mine.name(other).find("process ") != std::string_view::npos);
      CHECK(mine.name(count).empty());
    }
    buffer<> from(all.bed.domain, pattern(64, 1));
    buffer<> into(all.bed.domain, 64);
    auto receive = must(all.ranks[0].peers()[count - 1].post_receive({.elements = into.scatter()}));
    must(all.ranks[count - 1].peers()[0].send({.elements = from.gather()}));
    must(receive.wait(patience));
    CHECK(into.bytes() == from.bytes());
  }
}

TEST_CASE("ranks exchange values of several types") {
  local_worlds all(3);
  std::vector<buffer<>> memory;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    memory.emplace_back(all.bed.domain, pattern(64, rank));
  std::vector<std::vector<
      std::tuple<remote_memory<access::remote_read | access::remote_write>, bounded_text<16>>>>
      seen(3);
  on_threads(3, [&](std::uint32_t rank) {
    const bounded_text<16> name = must(bounded_text<16>::from("rank " + std::to_string(rank)));
    seen[rank] = must(
        all.ranks[rank].exchange(std::tuple(must(memory[rank].region().remote()), name), patience));
    const auto numbers = must(all.ranks[rank].exchange(rank * 10, patience));
    require(numbers == std::vector<std::uint32_t>{0, 10, 20},
            "the numbers are not in the order of the ranks");
  });
  for (const auto& each : seen) {
    REQUIRE(each.size() == 3);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      CHECK(std::get<0>(each[rank]) == must(memory[rank].region().remote()));
      CHECK(std::get<1>(each[rank]).view() == "rank " + std::to_string(rank));
    }
  }
}

TEST_CASE("no rank leaves a barrier before all have arrived") {
  const std::uint32_t rounds = rounds_of_barriers();
  for (const std::uint32_t count : {1U, 2U, 3U, 5U}) {
    local_worlds all(count);
    for (const barrier_kind kind : all_kinds) {
      std::atomic<std::uint32_t> come{0};
      on_threads(count, [&](std::uint32_t rank) {
        for (std::uint32_t round = 1; round <= rounds; ++round) {
          // steady: in each round, this pause makes a different rank late; the test also passes if
          // that rank is not late
          if (round % count == rank) std::this_thread::sleep_for(std::chrono::microseconds(200));
          ++come;
          const group_results done = all.ranks[rank].barrier(patience, kind);
          require(done.has_value(), "the barrier failed");
          require(done.message() == "succeeded", done.message().c_str());
          require(come >= round * count, "a rank left the barrier before all had arrived");
        }
      });
    }
  }
}

TEST_CASE("barriers work for subsets of a world's ranks, and invalid lists of ranks are refused") {
  local_worlds all(5);
  const std::vector<std::uint32_t> odd{1, 3};
  const std::vector<std::uint32_t> even{4, 0, 2};
  on_threads(5, [&](std::uint32_t rank) {
    for (int round = 0; round < 10; ++round) {
      const barrier_kind kind = all_kinds[static_cast<std::size_t>(round) % all_kinds.size()];
      require(all.ranks[rank].barrier(rank % 2 == 1 ? odd : even, patience, kind).has_value(),
              "the barrier of a subset of the ranks failed");
      if (round % 3 == 0)
        require(all.ranks[rank].barrier(patience).has_value(), "the barrier of all ranks failed");
    }
  });
  world& mine = all.ranks[0];
  const std::vector<std::vector<std::uint32_t>> no_lists{{0, 1, 0}, {0, 5}, {1, 2}, {}};
  for (const std::vector<std::uint32_t>& wrong : no_lists) {
    const group_results refused = mine.barrier(wrong, patience);
    CHECK_FALSE(refused);
    CHECK(static_cast<error>(refused.error()).kind() == error_kind::invalid_input);
  }
  CHECK(mine.barrier({0}, patience));
}

TEST_CASE("after a barrier inside a scope, all ranks' writes of the scope have arrived") {
  constexpr std::uint32_t count = 4;
  constexpr std::uint32_t rounds = 20;
  local_worlds all(count);
  std::vector<registered_buffer<access::local_write | access::remote_write, std::uint64_t>> edges;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    edges.push_back(must(registered_buffer < access::local_write | access::remote_write,
                         std::uint64_t > ::allocate(all.bed.domain, 2 * count)));
  on_threads(count, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    auto& own = edges[rank];
    const auto memory = must(mine.exchange(must(own.remote()), patience));
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const barrier_kind kind = all_kinds[round % all_kinds.size()];
      own[count + rank] = std::uint64_t{round} * count + rank;
      must(mine.peers().scope(
          [&](group_scope& scope) -> group_result<void> {
            VERBSPP_TRYV(scope.post_scatter(
                mine.peers().all(), [&](std::uint32_t to) -> result<write_operation> {
                  VERBSPP_TRY(from, own.gather(count + rank, 1));
                  VERBSPP_TRY(
                      into, memory[to].slice(rank * sizeof(std::uint64_t), sizeof(std::uint64_t)));
                  return write_operation{.elements = from, .remote = into};
                }));
            VERBSPP_TRYV(mine.barrier(scope, patience, kind));
            for (std::uint32_t other = 0; other < count; ++other)
              require(own[other] == std::uint64_t{round} * count + other,
                      "a value of another rank is wrong");
            // Without this barrier, a rank might write the next values before all ranks have read
            // the current ones.
            VERBSPP_TRYV(mine.barrier(scope, mine.peers().all(), patience, kind));
            return success();
          },
          patience));
    }
  });
}

TEST_CASE("a rank whose request in a scope has failed does not join the barrier in the scope") {
  local_worlds all(3);
  buffer<> from(all.bed.domain, pattern(64, 1));
  const auto gone = memory_that_is_gone(all);
  on_threads(3, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    const auto done = mine.peers().scope(
        [&](group_scope& scope) -> group_result<void> {
          if (rank == 1)
            VERBSPP_TRYV(scope[2].post_write({.elements = from.gather(), .remote = gone}));
          const group_results came = mine.barrier(scope, rank == 1 ? patience : 500ms);
          require(!came.has_value(), "the barrier succeeded");
          require(std::ranges::count(blamed(came), rank == 1 ? 2U : 1U) == 1,
                  "the barrier blames the wrong ranks");
          return success();
        },
        patience);
    require(done.has_value() == (rank != 1), "the scope failed on the wrong rank");
    must(mine.mend(patience));
    for (const barrier_kind kind : all_kinds)
      require(mine.barrier(patience, kind).has_value(), "the next barrier failed");
  });
}

TEST_CASE("a rank that skips a barrier because its request in the scope has failed reports this") {
  local_worlds all(4);
  buffer<> from(all.bed.domain, pattern(64, 1));
  const auto gone = memory_that_is_gone(all);
  on_threads(3, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    const auto done = mine.peers().scope(
        [&](group_scope& scope) -> group_result<void> {
          // The request that fails goes to rank 3, which does not take part in the barrier.
          if (rank == 1)
            VERBSPP_TRYV(scope[3].post_write({.elements = from.gather(), .remote = gone}));
          const auto start = clock::now();
          const group_results came = mine.barrier(scope, {0, 1, 2}, 3 * patience);
          require(blamed(came) == std::vector<std::uint32_t>{rank == 1 ? 3U : 1U},
                  "the barrier blames the wrong ranks");
          require(static_cast<error>(came.error()).kind() == error_kind::failed_request,
                  came.message().c_str());
          require(clock::now() < start + 2 * patience, "the rank was not notified in time");
          return success();
        },
        patience);
    require(done.has_value() == (rank != 1), "the scope failed on the wrong rank");
    require(mine.barrier({0, 1, 2}, patience).has_value(), "the next barrier failed");
  });
}

TEST_CASE("a barrier that times out names the missing ranks and the next one works", "[long]") {
  local_worlds all(5);
  const std::vector<std::uint32_t> late{2, 4};
  for (const barrier_kind kind : all_kinds) {
    std::atomic<int> given_up{0};
    on_threads(5, [&](std::uint32_t rank) {
      // Ranks 2 and 4 arrive only after the others have given up.
      const bool is_late = rank == 2 || rank == 4;
      if (is_late) wait_until([&] { return given_up == 3; }, "the others to give up");
      const group_results done = all.ranks[rank].barrier(is_late ? 50ms : 2000ms, kind);
      if (!is_late) {
        require(!done.has_value(), "the barrier succeeded without ranks 2 and 4");
        require(std::ranges::includes(blamed(done), late),
                "the barrier does not blame ranks 2 and 4");
        require(static_cast<error>(done.error()).kind() == error_kind::timed_out,
                "the error kind is wrong");
        ++given_up;
      }
      if (is_late) return;
      require(all.ranks[rank].peers().connected().size() == 5, "a connection broke");
    });
  }
  on_threads(5, [&](std::uint32_t rank) {
    for (int round = 0; round < 3; ++round)
      for (const barrier_kind kind : all_kinds)
        require(all.ranks[rank].barrier(patience, kind).has_value(), "the next barrier failed");
  });
}

TEST_CASE("a broken connection is reported with its rank and reconnected") {
  local_worlds all(4);
  break_link(all.ranks[1], all.ranks[3]);
  std::atomic<int> failed{0};
  on_threads(4, [&](std::uint32_t rank) {
    const group_results done = all.ranks[rank].barrier(500ms, barrier_kind::dissemination);
    if (!done) ++failed;
    const auto blames = [&](std::uint32_t other) {
      return std::ranges::count(blamed(done), other) == 1;
    };
    if (rank == 1) require(blames(3), "rank 3 is not blamed");
    if (rank == 3) require(blames(1), "rank 1 is not blamed");
    must(all.ranks[rank].mend(patience));
    require(all.ranks[rank].peers().connected().size() == 4, "not all ranks were connected");
    for (const barrier_kind kind : all_kinds)
      require(all.ranks[rank].barrier(patience, kind).has_value(), "the next barrier failed");
  });
  CHECK(failed >= 2);
}

TEST_CASE("ranks that leave because another rank has left are not blamed", "[long]") {
  constexpr std::uint32_t count = 9;
  constexpr std::uint32_t first = 7;
  // In each of these steps, some ranks do not communicate with the rank that has left. They learn
  // of the loss from ranks that leave soon afterwards.
  const std::vector<std::function<group_error(world&, const wait_limit&)>> steps{
      [](world& mine, const wait_limit& limit) {
        return mine.barrier(limit, barrier_kind::binary_tree).error();
      },
      [](world& mine, const wait_limit& limit) {
        return mine.barrier(limit, barrier_kind::dissemination).error();
      },
      [](world& mine, const wait_limit& limit) {
        return failure_of(mine.all_reduce(mine.rank(), std::plus<>(), limit));
      },
  };
  for (const auto& step : steps) {
    local_worlds all(count);
    on_threads(count, [&](std::uint32_t rank) {
      world mine = std::move(all.ranks[rank]);
      if (rank == first) return;
      const auto start = std::chrono::steady_clock::now();
      const group_error failed = step(mine, 10 * patience);
      require(failed.peer() == first, failed.message().c_str());
      require(failed.failed() == 1, failed.message().c_str());
      require(std::chrono::steady_clock::now() < start + 9 * patience,
              "the rank did not notice this in time");
      // A later step fails as well, and blames the same rank as the first step did.
      const group_results next = mine.barrier(10 * patience);
      require(blamed(next) == std::vector<std::uint32_t>{first}, next.message().c_str());
    });
  }
}

TEST_CASE("if two ranks lose their connection, steps of both fail until they are reconnected") {
  local_worlds all(4);
  break_link(all.ranks[1], all.ranks[2]);
  on_threads(4, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    // A rank whose own connections are intact gets a report, which blames one of the two ends of
    // the broken connection.
    const group_error failed = failure_of(mine.all_gather(rank, patience));
    require(failed.peer() == 1U || failed.peer() == 2U, failed.message().c_str());
    // Only steps in which both rank 1 and rank 2 take part fail. A step with ranks 0 and 3
    // succeeds.
    if (rank == 0 || rank == 3) {
      const group_results among = mine.barrier({0, 3}, patience);
      require(among.has_value(), among.message().c_str());
    }
    must(mine.mend(patience));
    require(must(mine.all_gather(rank, patience)).size() == 4, "the next step failed");
    require(mine.barrier(patience).has_value(), "the next barrier failed");
  });
}

TEST_CASE("collective steps return the values of all ranks to each rank") {
  struct sample {
    std::uint32_t rank;
    double value;
  };
  for (const std::uint32_t count : {1U, 2U, 5U}) {
    local_worlds all(count);
    on_threads(count, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      for (std::uint32_t round = 0; round < 20; ++round) {
        // steady: in each round, this pause makes a different rank late; the test also passes if
        // that rank is not late
        if (round % count == rank) std::this_thread::sleep_for(std::chrono::microseconds(200));
        const auto values = must(mine.all_gather(sample{rank, round + 0.5}, patience));
        for (std::uint32_t each = 0; each < count; ++each)
          require(values[each].rank == each && values[each].value == round + 0.5,
                  "a value is wrong");
        const auto sum = must(mine.all_reduce(
            rank + round, [](std::uint32_t a, std::uint32_t b) { return a + b; }, patience));
        require(sum == count * (count - 1) / 2 + round * count, "the sum is wrong");
        require(must(mine.broadcast(rank, round % count, patience)) == round % count,
                "the root's value is wrong");
      }
    });
  }
}

TEST_CASE("a world whose transport may lose signals is refused") {
  const testbed bed;
  const auto refused = [](const group_error& e) {
    CHECK(static_cast<error>(e) == error_kind::not_supported);
    CHECK_THAT(e.message(), Catch::Contains("a world needs a reliable transport"));
  };
  const auto like = bed.domain.build_channel<transport::uc>();
  const auto pool = must(message_pool::create(bed.domain, 4, 64));
  const auto alone = [] { return std::move(local_bootstrap::create(2)[0]); };
  refused(failure_of(world::join(alone(), like, patience)));
  refused(failure_of(world::join(alone(), like, pool, patience)));
  refused(failure_of(world::join_lazily(alone(), like, patience)));
  refused(failure_of(world::join_lazily(alone(), like, pool, patience)));
}

TEST_CASE("invalid worlds are refused") {
  const testbed bed;
  const auto refused = [&](std::uint32_t rank, std::uint32_t size) {
    struct wrong {
      std::uint32_t own;
      std::uint32_t all;
      [[nodiscard]] std::uint32_t rank() const { return own; }
      [[nodiscard]] std::uint32_t size() const { return all; }
      result<void> put(std::string_view, std::span<const std::byte>) { return success(); }
      group_result<void> fence(const wait_limit&) { return success(); }
      result<std::size_t> get(std::uint32_t, std::string_view, std::span<std::byte> into,
                              const wait_limit&) {
        return std::min<std::size_t>(into.size(), 1);
      }
    };
    return static_cast<error>(
               failure_of(world::join(wrong{rank, size}, bed.domain.build_channel(), patience)))
        .kind();
  };
  CHECK(refused(0, 0) == error_kind::invalid_input);
  CHECK(refused(2, 2) == error_kind::invalid_input);
  CHECK(refused(0, 65'536) == error_kind::invalid_input);
  // The world's size and the rank are valid, but each published value has only one byte.
  CHECK(refused(0, 1) == error_kind::invalid_input);

  // Ranks 0 and 2 of this world never arrive.
  std::vector<local_bootstrap> launched = local_bootstrap::create(3);
  const auto alone = failure_of(world::join(std::move(launched[1]), bed.domain.build_channel(),
                                            std::chrono::milliseconds(50)));
  CHECK(alone.peer() == 0U);
  CHECK(alone.failed() == 2);
  CHECK(static_cast<error>(alone).kind() == error_kind::timed_out);

  local_worlds one(1);
  world moved = std::move(one.ranks[0]);
  CHECK(one.ranks[0].size() == 0);
  CHECK_FALSE(one.ranks[0].barrier(patience));
  CHECK_FALSE(one.ranks[0].mend(patience));
}
