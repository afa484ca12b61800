// SPDX-License-Identifier: Apache-2.0
/// \file
/// Worlds whose ranks connect lazily: only when they first communicate.

#include "../device/failing_device.hpp"
#include "worlds.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

[[nodiscard]] std::vector<std::uint32_t> connected_of(world& of) {
  const peer_list all = of.peers().connected();
  return {all.begin(), all.end()};
}

/// A stop token that ends a rank's wait once the rank is connected to all of the given ranks.
class when_none_is_due {
 public:
  when_none_is_due(world& of, const std::vector<std::uint32_t>& ranks) : of_(&of), ranks_(&ranks) {}
  [[nodiscard]] bool stop_requested() const noexcept { return !of_->peers().is_any_due(*ranks_); }

 private:
  world* of_;
  const std::vector<std::uint32_t>* ranks_;
};

using cells = registered_buffer<access::local_write | access::remote_write, std::uint64_t>;

/// Allocates memory for each rank, and divides it into cells. Later, rank N copies its own cell
/// `count` + N to cell N of another rank.
[[nodiscard]] std::vector<cells> cells_of(const lazy_worlds& all) {
  const auto count = static_cast<std::uint32_t>(all.ranks.size());
  std::vector<cells> made;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    made.push_back(must(cells::allocate(all.bed.domain, 2 * count)));
    made.back()[count + rank] = 100 + rank;
  }
  return made;
}

/// Returns the operation with which rank `from` writes to its cell in the memory of rank `to`.
[[nodiscard]] result<write_operation> into_cell(std::vector<cells>& of, std::uint32_t from,
                                                std::uint32_t to) {
  VERBSPP_TRY(memory, of[to].remote());
  VERBSPP_TRY(place, memory.slice(from * sizeof(std::uint64_t), sizeof(std::uint64_t)));
  VERBSPP_TRY(elements, of[from].gather(of.size() + from, 1));
  return write_operation{.elements = elements, .remote = place};
}

/// A bootstrap in which rank 1's first request for a value of rank 0 blocks until its limit
/// expires, and then fails.
struct slow_bootstrap : passing_bootstrap {
  struct notes {
    std::optional<std::chrono::nanoseconds> limit{};  ///< the limit of the delayed call
    clock::time_point end{};                          ///< the end of that call
    std::optional<clock::time_point> next{};
  };
  notes* noted;
  result<std::size_t> get(std::uint32_t from, std::string_view key, std::span<std::byte> into,
                          const wait_limit& limit) {
    if (rank() == 1 && from == 0) {
      if (!noted->limit) {
        noted->limit = limit.remaining().value_or(patience);
        while (!limit.has_passed()) std::this_thread::yield();
        noted->end = clock::now();
        return limit.failure("get the value of a rank");
      }
      if (!noted->next) noted->next = clock::now();
    }
    return of.get(from, key, into, limit);
  }
};

/// A bootstrap that notes the number of the queue pair with which a rank receives datagrams.
struct noting_bootstrap : passing_bootstrap {
  std::uint32_t* noted;
  result<void> put(std::string_view key, std::span<const std::byte> value) {
    constexpr std::size_t behind_memory = remote_memory<access::remote_write>::encoded_size;
    if (key.starts_with("verbspp.rank."))
      *noted = must(endpoint::decode(value.subspan(behind_memory, endpoint::encoded_size)))
                   .number.value();
    return of.put(key, value);
  }
};

/// A world like `lazy_worlds`, which notes the numbers of the ranks' queue pairs for datagrams.
struct noting_worlds {
  explicit noting_worlds(std::uint32_t count) : numbers(count) {
    std::vector<local_bootstrap> launched = local_bootstrap::create(count);
    std::vector<std::optional<world>> made(count);
    on_threads(count, [&](std::uint32_t rank) {
      made[rank].emplace(
          must(world::join_lazily(noting_bootstrap{{std::move(launched[rank])}, &numbers[rank]},
                                  bed.domain.build_channel(), patience)));
    });
    for (auto& each : made) ranks.push_back(std::move(*each));
  }

  testbed bed;
  std::vector<std::uint32_t> numbers;
  std::vector<world> ranks{};
};

}  // namespace

TEST_CASE("ranks are connected only when they communicate, and only to each other") {
  lazy_worlds all(4);
  for (world& each : all.ranks) {
    CHECK(each.size() == 4);
    CHECK(each.peers().size() == 4);
    CHECK(each.peers().all().size() == 4);
    CHECK(connected_of(each) == std::vector<std::uint32_t>{each.rank()});
  }
  CHECK_FALSE(all.ranks[1].name(1).empty());
  CHECK(all.ranks[1].name(3).empty());
  while_served([&] { all.ranks[3].serve(); },
               [&] {
                 require(all.ranks[1].peers().connect({3}, patience).has_value(),
                         "rank 3 was not connected");
               });
  CHECK(connected_of(all.ranks[1]) == std::vector<std::uint32_t>{1, 3});
  CHECK(connected_of(all.ranks[3]) == std::vector<std::uint32_t>{1, 3});
  CHECK(connected_of(all.ranks[0]) == std::vector<std::uint32_t>{0});
  CHECK_FALSE(all.ranks[1].name(3).empty());
  // A second call does not connect again, so the queue pair stays the same.
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

TEST_CASE("two ranks that connect to each other at the same time get one connection") {
  for (std::uint32_t round = 0; round < 50; ++round) {
    lazy_worlds all(2);
    buffer<> memory[]{buffer<>(all.bed.domain, 64), buffer<>(all.bed.domain, 64)};
    std::atomic<std::uint32_t> come{0};
    on_threads(2, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      ++come;
      while (come < 2) std::this_thread::yield();
      require(mine.peers().connect({1 - rank}, patience).has_value(),
              "the other rank was not connected");
      buffer<> news(all.bed.domain, pattern(64, rank));
      auto receive =
          must(mine.peers()[1 - rank].post_receive({.elements = memory[rank].scatter()}));
      // If the peer has not yet posted its receive, the device retries the send.
      must(mine.peers()[1 - rank].send({.elements = news.gather()}, patience));
      must(receive.wait(patience));
    });
    CHECK(memory[0].bytes() == pattern(64, 1));
    CHECK(memory[1].bytes() == pattern(64, 0));
  }
}

TEST_CASE("scatter and scopes and each collective step connect the ranks involved") {
  constexpr std::uint32_t count = 6;
  const auto with =
      [&](const std::function<void(lazy_worlds&, std::vector<cells>&, std::uint32_t)>& use,
          barrier_kind last = barrier_kind::by_size) {
        lazy_worlds all(count);
        std::vector<cells> memory = cells_of(all);
        on_threads(count, [&](std::uint32_t rank) {
          use(all, memory, rank);
          // During this barrier, ranks still answer connection requests from other ranks.
          require(all.ranks[rank].barrier(patience, last).has_value(), "the last barrier failed");
        });
      };
  const auto has_all = [&](cells& own) {
    for (std::uint32_t other = 0; other < count; ++other)
      require(own[other] == 100 + other, "a value of another rank is wrong");
  };

  SECTION("barriers") {
    for (const barrier_kind kind :
         {barrier_kind::centralized, barrier_kind::binary_tree, barrier_kind::dissemination}) {
      std::atomic<std::uint32_t> come{0};
      std::atomic<std::uint32_t> connected{0};
      const auto use = [&](lazy_worlds& all, std::vector<cells>& /*memory*/, std::uint32_t rank) {
        for (std::uint32_t round = 1; round <= 3; ++round) {
          ++come;
          require(all.ranks[rank].barrier(patience, kind).has_value(), "the barrier failed");
          require(come >= round * count, "a rank left the barrier before all had arrived");
        }
        connected += static_cast<std::uint32_t>(all.ranks[rank].peers().connected().size());
      };
      with(use, kind);
      // Each rank is connected to itself. In a star or a tree, each of the 5 edges is counted at
      // both of its ends. In a dissemination barrier, each of the 6 ranks is connected to 4 others,
      // namely those at distances 1, 2 and 4 on a ring, in both directions.
      CHECK(connected == count + (kind == barrier_kind::dissemination ? 6U * 4 : 2U * 5));
    }
  }
  SECTION("other collective steps") {
    static_cast<void>(
        with([&](lazy_worlds& all, std::vector<cells>& /*memory*/, std::uint32_t rank) {
          world& mine = all.ranks[rank];
          require(must(mine.broadcast(rank, 2, patience)) == 2, "the root's value is wrong");
          require(must(mine.all_reduce(rank, std::plus<>(), patience)) == 15, "the sum is wrong");
          require(must(mine.gather(rank, 4, patience)).size() == (rank == 4 ? count : 0),
                  "the number of gathered values is wrong");
          require(must(mine.all_gather(rank, patience)).back() == 5, "a value is wrong");
        }));
  }
  SECTION("scatter to ranks that wait in a barrier") {
    with([&](lazy_worlds& all, std::vector<cells>& memory, std::uint32_t rank) {
      world& mine = all.ranks[rank];
      const auto to = [&](std::uint32_t peer) { return into_cell(memory, rank, peer); };
      // Only the ranks with even numbers scatter.
      if (rank % 2 == 0)
        require(mine.peers().scatter(mine.peers().all(), to, patience).has_value(),
                "the scatter failed");
      require(mine.barrier(patience).has_value(), "the barrier failed");
      for (std::uint32_t other = 0; other < count; other += 2)
        require(memory[rank][other] == 100 + other, "a value of another rank is wrong");
    });
  }
  SECTION("unpolled requests and requests in scopes") {
    with([&](lazy_worlds& all, std::vector<cells>& memory, std::uint32_t rank) {
      world& mine = all.ranks[rank];
      const auto to = [&](std::uint32_t peer) { return into_cell(memory, rank, peer); };
      const std::uint32_t next = (rank + 1) % count;
      auto work = must(mine.peers().post_scatter({next}, to));
      require(work.wait(patience).has_value(), "the request failed");
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

TEST_CASE("a rank that does not answer is reported by number and called again at the next use",
          "[long]") {
  lazy_worlds all(4);
  std::vector<cells> memory = cells_of(all);
  world& mine = all.ranks[0];
  const auto to = [&](std::uint32_t peer) { return into_cell(memory, 0, peer); };
  const auto first_rank_serves = [&] { all.ranks[1].serve(); };
  // First, connect to rank 1 with a long limit. On a busy machine, rank 1 might not get a processor
  // within the two seconds of the second call.
  while_served(first_rank_serves, [&] {
    require(mine.peers().connect({1}, patience).has_value(), "rank 1 did not answer");
  });
  while_served(first_rank_serves, [&] {
    // Rank 1 is connected, ranks 2 and 3 do not answer, and there is no rank 7.
    const group_results reached = mine.peers().connect({1, 2, 0, 3, 7}, 2s);
    require(reached.size() == 5 && reached.failed() == 3, "the number of failures is wrong");
    require(kind_of(reached[1]) == error_kind::timed_out, "rank 2 is not reported as late");
    require(kind_of(reached[3]) == error_kind::timed_out, "rank 3 is not reported as late");
    require(kind_of(reached[4]) == error_kind::invalid_input,
            "rank 7, which does not exist, is not refused");
    const group_results scattered = mine.peers().scatter({1, 2}, to, 2s);
    require(scattered.failed() == 1, "the number of failures is wrong");
    require(kind_of(scattered[1]) == error_kind::timed_out, "rank 2 is not reported as late");
    const auto scoped = mine.peers().scope(
        [&](group_scope& scope) -> group_result<void> {
          const auto posted = scope.post_scatter({2, 1}, to);
          require(!posted.has_value() && posted.assume_error().peer() == 2U,
                  "rank 2 is not reported as late");
          require(!scope[3].post_send({}).has_value(), "the scope accepted a request to rank 3");
          return success();
        },
        2s);
    require(scoped.has_value(), "the scope failed");
    const group_results barrier = mine.barrier({0, 2}, 300ms);
    require(barrier.size() == 2 && !barrier[1].result.has_value(),
            "rank 2 is not reported as missing");
  });
  CHECK(memory[1][0] == 100);
  CHECK(connected_of(mine) == std::vector<std::uint32_t>{0, 1});
  while_served(
      [&] { all.ranks[2].serve(); },
      [&] { require(mine.peers().scatter({2}, to, patience).has_value(), "the scatter failed"); });
  CHECK(memory[2][0] == 100);
}

TEST_CASE("ranks that do not answer do not prevent calls to others") {
  constexpr std::uint32_t silent = 20;
  lazy_worlds all(2 * silent);
  std::vector<std::uint32_t> others;
  for (std::uint32_t rank = 1; rank < 2 * silent; ++rank) others.push_back(rank);
  const std::vector<std::uint32_t> answering(others.begin() + silent, others.end());
  const auto serve = [&] {
    for (const std::uint32_t rank : answering) all.ranks[rank].serve();
  };
  while_served(serve, [&] {
    // The wait ends once all ranks that answer are connected.
    const wait_limit until(clock::now() + 3 * patience, when_none_is_due(all.ranks[0], answering));
    const group_results reached = all.ranks[0].peers().connect(others, until);
    require(reached.size() == others.size() && reached.failed() == silent,
            "the number of failures is wrong");
    for (const peer_result& each : reached)
      require(each.result.has_value() == (each.peer > silent),
              "the wrong ranks are reported as silent");
  });
}

TEST_CASE("the program's own channels are not changed and do not occupy the number of a rank") {
  const testbed bed;
  std::vector<local_bootstrap> launched = local_bootstrap::create(3);
  std::vector<std::optional<world>> made(3);
  const message_pool pool = must(message_pool::create(bed.domain, 32, 64));
  on_threads(3, [&](std::uint32_t rank) {
    made[rank].emplace(
        must(world::join_lazily(std::move(launched[rank]), bed.domain.build_channel(), pool,
                                patience, group_options{.spare = 2, .receives = 8})));
  });
  group& peers = made[0]->peers();
  group& theirs = made[1]->peers();
  const auto build = [&](group& in) {
    return channel(must(bed.domain.build_channel().hub(in.hub()).build()));
  };
  // The new channel's number is above the numbers of the ranks, which are reserved.
  const std::uint32_t added = must(peers.add(build(peers)));
  CHECK(added == 3);
  must(peers[added].handshake(peers[added].endpoint()));
  CHECK(must(peers.add(build(peers))) == 4);
  const auto one_too_many = peers.add(build(made[1]->peers()));
  CHECK_FALSE(one_too_many);
  CHECK(peers.all().size() == 5);
  CHECK(peers.remove(4).state() == channel_state::prepared);
  CHECK(peers.all().size() == 4);
  // The program connects this channel itself, at both ends.
  must(peers.put(1, build(peers)));
  must(theirs.put(0, build(theirs)));
  const ibv_qp* const own = peers[1].native_handle();
  must(peers[1].handshake(theirs[0].endpoint()));
  must(theirs[0].handshake(peers[1].endpoint()));
  const auto serve = [&] {
    made[1]->serve();
    made[2]->serve();
  };
  while_served(serve, [&] {
    const group_results reached = peers.connect({1, 2, added, 4}, patience);
    require(reached.size() == 4, "the number of results is wrong");
    require(reached[0].result.has_value(), "the program's own channel to rank 1 is not used");
    require(reached[1].result.has_value(), "rank 2 was not connected");
    require(reached[2].result.has_value(),
            "the member that is not a rank of the world is not connected");
    require(kind_of(reached[3]) == error_kind::not_connected,
            "the member that was removed is not reported as not connected");
  });
  CHECK(peers[1].native_handle() == own);
  CHECK(theirs.connect({0}, 100ms));
  // The program at rank 2 puts its own channel to rank 1 into the group. From then on, rank 2
  // refuses calls from rank 1.
  must(made[2]->peers().put(1, build(made[2]->peers())));
  while_served([&] { made[2]->serve(); },
               [&] {
                 const group_results reached = theirs.connect({2}, patience);
                 require(reached.failed() == 1, "rank 2 did not refuse");
                 require(kind_of(reached[0]) == error_kind::not_connected,
                         "the refusal is not reported");
               });
  CHECK(made[2]->peers()[1].state() == channel_state::prepared);
}

TEST_CASE("a scope refuses requests to a silent rank, but connecting to it later can succeed") {
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
  while_served(
      [&] { all.ranks[1].serve(); },
      [&] { require(peers.connect({1}, patience).has_value(), "rank 1 was not connected"); });
  CHECK(peers[1].is_connected());
}

TEST_CASE("a rank that has left does not answer and makes a barrier fail") {
  lazy_worlds all(3);
  on_threads(3, [&](std::uint32_t rank) {
    if (rank == 2) return;
    require(all.ranks[rank].peers().connect({1 - rank}, patience).has_value(),
            "ranks 0 and 1 were not connected");
  });
  all.ranks.pop_back();
  const group_results reached = all.ranks[0].peers().connect({2, 1}, 200ms);
  CHECK(reached.failed() == 1);
  CHECK(kind_of(reached[0]) == error_kind::timed_out);
  const group_results barrier = all.ranks[0].barrier(200ms);
  REQUIRE(barrier.size() == 3);
  CHECK_FALSE(barrier[2].result);
}

TEST_CASE("ranks that wait for a late rank report to the ranks that wait for them", "[long]") {
  constexpr std::uint32_t count = 9;
  constexpr std::uint32_t first = 7;
  const std::vector<std::uint32_t> others{0, 1, 2, 3, 4, 5, 6, 8};
  // The rank for which each rank waits in the tree. Rank 6 waits for rank `first` until a time
  // limit expires. Every other rank waits until the rank that is given here has given up.
  const std::array<std::uint32_t, count> waits_for{4, 0, 0, 2, 6, 4, first, first, 0};
  std::array<std::atomic<bool>, count> has_given_up{};
  lazy_worlds all(count);
  std::atomic<std::uint32_t> ready{0};
  on_threads(count, [&](std::uint32_t rank) {
    // Rank `first` answers no other rank.
    if (rank == first) return;
    world& mine = all.ranks[rank];
    require(mine.peers().connect(others, patience).has_value(),
            "the other ranks were not connected");
    ++ready;
    wait_until([&] { return (mine.serve(), ready == count - 1); }, "all ranks to be connected");
    const wait_limit limit =
        rank == 6 ? wait_limit(2s) : wait_limit(when_set(has_given_up[waits_for[rank]]));
    const group_error failed = failure_of(mine.all_reduce(rank, std::plus<>(), limit));
    has_given_up[rank] = true;
    require(failed.peer() == first, failed.message().c_str());
    require(static_cast<error>(failed).kind() == error_kind::timed_out, failed.message().c_str());
  });
}

TEST_CASE("ranks that were connected lazily are reconnected and others stay unconnected") {
  lazy_worlds all(4);
  on_threads(4, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank < 2)
      require(mine.peers().connect({1 - rank}, patience).has_value(),
              "ranks 0 and 1 were not connected");
    // Rank 2 calls rank 3, which does not answer. So only rank 2 prepares its end of the
    // connection.
    if (rank == 2) require(!mine.peers().connect({3}, 50ms).has_value(), "rank 3 answered");
    require(must(mine.exchange(rank, patience)).size() == 4,
            "the number of exchanged values is wrong");
  });
  break_link(all.ranks[0], all.ranks[1]);
  on_threads(4, [&](std::uint32_t rank) { must(all.ranks[rank].mend(patience)); });
  CHECK(connected_of(all.ranks[0]) == std::vector<std::uint32_t>{0, 1});
  CHECK(connected_of(all.ranks[3]) == std::vector<std::uint32_t>{2, 3});
  on_threads(4, [&](std::uint32_t rank) {
    for (int round = 0; round < 3; ++round)
      require(must(all.ranks[rank].all_gather(rank, patience)).size() == 4, "the next step failed");
  });
}

TEST_CASE("ranks connect over a network that loses and duplicates and reorders datagrams",
          "[long]") {
  const std::array effects{":30%=lost", ":30%=doubled", ":30%=swapped"};
  std::array<unsigned long long, effects.size()> strikes{};
  for (int round = 0; round < 10; ++round) {
    noting_worlds all(3);
    // The faults affect only datagrams. A connection retransmits a request only a limited number of
    // times, and random faults might affect all of these attempts.
    std::vector<std::string> faults;
    for (const std::uint32_t number : all.numbers)
      for (const char* const effect : effects)
        faults.push_back("packet@" + std::to_string(number) + effect);
    std::string joined;
    for (const std::string& each : faults) joined += each + "; ";
    const failing_device bad(joined.c_str());
    on_threads(3, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      require(mine.peers().connect(mine.peers().all(), 3 * patience).has_value(),
              "the other ranks were not connected");
      require(mine.barrier(3 * patience).has_value(), "the barrier failed");
    });
    for (world& each : all.ranks) CHECK(each.peers().connected().size() == 3);
    const auto struck = reinterpret_cast<unsigned long long (*)(const char*)>(
        ::dlsym(RTLD_DEFAULT, "softverbs_fault_struck"));
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const unsigned long long times = struck(faults[i].c_str());
      REQUIRE(times != ~0ULL);
      strikes.at(i % effects.size()) += times;
    }
  }
  for (const unsigned long long each : strikes) CHECK(each > 0);
}

TEST_CASE("a rank that no longer answers can be used even if its last datagrams were lost") {
  noting_worlds all(2);
  // Rank 0 receives only the first datagram of rank 1. The one that reports that rank 1 is
  // connected is lost.
  const std::string fault = "packet@" + std::to_string(all.numbers[0]) + ":2+=lost";
  const failing_device bad(fault.c_str());
  std::atomic<bool> has_left{false};
  on_threads(2, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank == 0)
      while (!has_left) mine.serve();
    const auto gathered = mine.gather(rank, 0, patience);
    has_left = true;
    require(gathered.has_value(), "the gather failed");
  });
}

/// A stop token for `mend`, which requests a stop once the channel to the given rank has been
/// renewed.
class when_renewed {
 public:
  when_renewed(world& of, std::uint32_t rank)
      : channel_(&of.peers()[rank]), before_(channel_->endpoint().generation) {}
  [[nodiscard]] bool stop_requested() const noexcept {
    return channel_->endpoint().generation > before_;
  }

 private:
  const channel* channel_;
  std::uint32_t before_;
};

TEST_CASE("ranks connect when they communicate even after an incomplete reconnection", "[long]") {
  lazy_worlds all(3);
  on_threads(2, [&](std::uint32_t rank) {
    require(all.ranks[rank].peers().connect({1 - rank}, patience).has_value(),
            "ranks 0 and 1 were not connected");
  });
  break_link(all.ranks[0], all.ranks[1]);
  on_threads(3, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank == 2)
      static_cast<void>(mine.mend(2s));
    else
      require(
          !mine.mend(wait_limit(clock::now() + patience, when_renewed(mine, 1 - rank))).has_value(),
          "the reconnection succeeded");
  });
  std::atomic<bool> is_done{false};
  on_threads(3, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank == 0) {
      const group_results reached = mine.peers().connect({1, 2}, patience);
      is_done = true;
      require(reached.has_value(), "ranks 1 and 2 were not connected");
    }
    while (!is_done) mine.serve();
    require(mine.barrier(patience).has_value(), "the barrier failed");
  });
}

TEST_CASE("the reason why the other end could not connect is reported") {
  lazy_worlds all(2);
  // Only the first queue pair can be created, which is the one at the calling end. All later
  // attempts fail, so the other end cannot create its queue pair.
  std::optional<failing_device> failing(std::in_place, "ibv_create_qp:2+=ENOMEM");
  group& peers = all.ranks[0].peers();
  while_served(
      [&] { all.ranks[1].serve(); },
      [&] {
        const group_results reached = peers.connect({1}, patience);
        failing.reset();
        const group_results again = peers.connect({1}, patience);
        require(reached.failed() == 1, "the connection to rank 1 succeeded");
        require(kind_of(reached[0]) == error_kind::not_connected, "the refusal is not reported");
        require(static_cast<error>(reached[0].result.assume_error()).native_errno() == ENOMEM,
                "the errno of rank 1 is not reported");
        require(again.has_value(), "rank 1 was not connected at the next use");
      });
}

TEST_CASE("a refusal of an earlier call is not mistaken for one of this call") {
  lazy_worlds all(2);
  group& peers = all.ranks[0].peers();
  const group_results unanswered = peers.connect({1}, 20ms);
  REQUIRE(unanswered.failed() == 1);
  CHECK(kind_of(unanswered[0]) == error_kind::timed_out);
  {
    const failing_device failing("ibv_create_qp:1+=ENOMEM");
    // Serve for a while, because a defect might take time to show. A correct library passes in any
    // case.
    const wait_limit until = 50ms;
    while (!until.has_passed()) all.ranks[1].serve();
  }
  while_served(
      [&] { all.ranks[1].serve(); },
      [&] { require(peers.connect({1}, patience).has_value(), "rank 1 was not connected"); });
}

TEST_CASE("a failure to send datagrams is not reported as silence of the other rank") {
  lazy_worlds all(2);
  const failing_device failing("send-completion:1=local_protection_error");
  const group_results reached = all.ranks[0].peers().connect({1}, patience);
  REQUIRE(reached.failed() == 1);
  INFO(reached.error().message());
  CHECK_FALSE(is_one_of(kind_of(reached[0]), {error_kind::timed_out, error_kind::not_connected}));
  const group_results again = all.ranks[0].peers().connect({1}, patience);
  CHECK(kind_of(again[0]) == kind_of(reached[0]));
}

TEST_CASE("if a world has a pool, a rank that waits for messages also answers calls") {
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
              "the message was not sent");
    } else {
      std::array<arrival, 4> slots{};
      while (seen.size() < 2)
        for (const arrival& each : must(mine.peers().wait(slots, patience)))
          if (each.message) seen.push_back(*mine.peers().peer_of(each.source));
    }
    require(mine.barrier(patience).has_value(), "the last barrier failed");
  });
  std::ranges::sort(seen);
  CHECK(seen == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("a rank that waits for an answer processes reports about the step", "[long]") {
  lazy_worlds all(4);
  constexpr std::uint32_t gone = 2;
  constexpr std::uint32_t silent = 3;
  on_threads(3, [&](std::uint32_t rank) {
    require(all.ranks[rank].peers().connect({0, 1, 2}, patience).has_value(),
            "ranks 0 to 2 were not connected");
  });
  {
    const world leaves = std::move(all.ranks[gone]);
  }
  // Rank 0 waits for the silent rank, and rank 1 waits for the rank that has left.
  on_threads(2, [&](std::uint32_t rank) {
    const auto start = std::chrono::steady_clock::now();
    const group_results none =
        all.ranks[rank].barrier({0, 1, silent, gone}, 3 * patience, barrier_kind::binary_tree);
    require(blamed(none) == std::vector<std::uint32_t>{gone},
            none.has_value() ? "no rank is blamed" : none.message().c_str());
    require(std::chrono::steady_clock::now() < start + 2 * patience,
            "the rank was not notified in time");
  });
}

TEST_CASE("a slow bootstrap delays a serving rank only briefly and is not queried again soon") {
  const testbed bed;
  std::vector<local_bootstrap> launched = local_bootstrap::create(2);
  slow_bootstrap::notes noted;
  std::atomic<bool> is_connected{false};
  on_threads(2, [&](std::uint32_t rank) {
    world mine = must(world::join_lazily(slow_bootstrap{{std::move(launched[rank])}, &noted},
                                         bed.domain.build_channel(), patience));
    if (rank == 0) {
      const bool is_done = mine.peers().connect({1}, patience).has_value();
      is_connected = true;
      require(is_done, "rank 1 was never connected");
    } else {
      wait_until([&] { return (mine.serve(), is_connected.load()); }, "rank 0 to connect",
                 3 * patience);
    }
    require(mine.barrier(patience).has_value(), "the last barrier failed");
  });
  REQUIRE(noted.limit);
  CHECK(*noted.limit <= 200ms);
  REQUIRE(noted.next);
  CHECK(*noted.next - noted.end >= 1s);
}
