// SPDX-License-Identifier: Apache-2.0
/// \file
/// How ranks detect lost ranks and aborted steps. If a rank aborts a step, it reports to the
/// other ranks which rank is to blame. Such a report must not disturb other ranks, and must not be
/// mistaken for a report about a different step.

#include "../device/failing_device.hpp"
#include "../sanitized.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<std::uint32_t>;

/// A barrier between threads. Each call waits until all threads have called. It can be used
/// repeatedly.
class meeting {
 public:
  explicit meeting(std::uint32_t size) : size_(size) {}
  void operator()(const char* what) {
    const std::uint32_t all = (come_.fetch_add(1) / size_ + 1) * size_;
    wait_until([&] { return come_ >= all; }, what, 10 * patience);
  }

 private:
  std::uint32_t size_;
  std::atomic<std::uint32_t> come_{0};
};

void require_blamed(const group_results& done, const numbers& ranks, int line = __builtin_LINE()) {
  require(blamed(done) == ranks,
          done.has_value() ? "no rank is blamed" : done.error().message().c_str(), line);
}

/// Breaks the connection between two ranks at both ends, and replaces it with a new connection
/// between them.
void renew_link(world& one, world& other) {
  channel& here = one.peers()[other.rank()];
  channel& there = other.peers()[one.rank()];
  const endpoint first = must(here.renew());
  const endpoint second = must(there.renew());
  must(here.handshake(second));
  must(there.handshake(first));
}

using memory_of_ranks = registered_buffer<access::local_write | access::remote_write>;

/// Fills the channel's send queue with sends. The other end posts the receives for them only later.
[[nodiscard]] std::vector<pending<>> fill(channel& with, const memory_of_ranks& memory) {
  std::vector<pending<>> filled;
  for (;;) {
    auto posted = with.post_send({.elements = must(memory.gather(0, 8))});
    if (!posted.has_value()) return filled;
    filled.push_back(std::move(posted).assume_value());
  }
}
/// At the other end of the channel, receives the messages that `fill` has sent, and waits until
/// their sends have completed.
void take(channel& with, memory_of_ranks& memory, std::vector<pending<>>& filled) {
  for (pending<>& each : filled) {
    must(with.receive({.elements = must(memory.scatter(24, 8))}, patience));
    must(each.wait(patience));
  }
}

/// A bootstrap that records the introduction that a rank publishes. The introduction begins with
/// the handle to the rank's memory for steps.
struct watched_bootstrap {
  local_bootstrap of;
  std::vector<std::byte>* introduced;
  [[nodiscard]] std::uint32_t rank() const { return of.rank(); }
  [[nodiscard]] std::uint32_t size() const { return of.size(); }
  result<void> put(std::string_view key, std::span<const std::byte> value) {
    if (key == "verbspp.rank.0.0") introduced->assign(value.begin(), value.end());
    return of.put(key, value);
  }
  group_result<void> fence(const wait_limit& limit) { return of.fence(limit); }
  result<std::size_t> get(std::uint32_t from, std::string_view key, std::span<std::byte> into,
                          const wait_limit& limit) {
    return of.get(from, key, into, limit);
  }
};

}  // namespace

TEST_CASE("a rank that has left is detected in each later step long before the limit", "[long]") {
  constexpr std::uint32_t gone = 7;
  constexpr std::uint32_t count = 9;
  const std::vector<std::function<group_error(world&, const wait_limit&)>> steps{
      [](world& mine, const wait_limit& limit) {
        return mine.barrier(limit, barrier_kind::binary_tree).error();
      },
      [](world& mine, const wait_limit& limit) {
        return failure_of(mine.all_reduce(mine.rank(), std::plus<>(), limit));
      },
      [](world& mine, const wait_limit& limit) {
        return mine.barrier(limit, barrier_kind::centralized).error();
      },
      [](world& mine, const wait_limit& limit) {
        return failure_of(mine.all_gather(mine.rank(), limit));
      },
  };
  local_worlds all(count);
  meeting others(count - 1);
  on_threads(count, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank == gone) {
      const world leaves = std::move(mine);
      return;
    }
    for (const auto& step : steps) {
      const auto start = std::chrono::steady_clock::now();
      const group_error failed = step(mine, 3 * patience);
      require(failed.peer() == gone && failed.failed() == 1, failed.message().c_str());
      require(std::chrono::steady_clock::now() < start + 2 * patience,
              "the rank was not notified in time");
      others("the others to be notified, too");
    }
  });
}

TEST_CASE(
    "asking ranks and reporting to them does not wait for requests or break other connections",
    "[long]") {
  local_worlds all(5);
  constexpr std::uint32_t gone = 4;
  memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  world& mine = all.ranks[0];
  // Posts sends for which the receiver has not yet posted receives: one to rank 2, and enough to
  // rank 3 to fill that channel's send queue.
  auto waits = must(mine.peers()[2].post_send({.elements = must(memory.gather(0, 8))}));
  std::vector<pending<>> filled = fill(mine.peers()[3], memory);
  const auto all_are_connected = [&] {
    return std::ranges::all_of(
        numbers{1, 2, 3}, [&](std::uint32_t rank) { return mine.peers()[rank].is_connected(); });
  };

  // In this step, rank 0 waits first for rank 1, until the limit expires.
  const group_results late = mine.barrier({0, 1, 2, 3}, 50ms, barrier_kind::binary_tree);
  CHECK(kind_of(late) == error_kind::timed_out);
  CHECK(std::ranges::count(blamed(late), 1U) == 1);
  CHECK(all_are_connected());

  // In this step, rank 0 waits first for the rank that has left.
  {
    const world leaves = std::move(all.ranks[gone]);
  }
  CHECK(blamed(mine.barrier({0, gone, 2, 3}, 3 * patience, barrier_kind::binary_tree)) ==
        numbers{gone});
  CHECK(all_are_connected());

  must(all.ranks[2].peers()[0].receive({.elements = must(memory.scatter(16, 8))}, patience));
  must(waits.wait(patience));
  take(all.ranks[3].peers()[0], memory, filled);
}

namespace {

/// Performs a step with ranks 1, 2 and 0, in that order, in a tree. `spoil` makes rank 2 leave the
/// world or abort the step. Rank 1 waits for rank 2, and rank 0 has no room in its queue for the
/// request that would signal rank 1.
void learn_without_room(const std::function<void(world&, const numbers&)>& spoil) {
  local_worlds all(3, 0, 1);
  memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  std::vector<pending<>> filled = fill(all.ranks[0].peers()[1], memory);
  const numbers list{1, 2, 0};
  spoil(all.ranks[2], list);
  on_threads(2, [&](std::uint32_t rank) {
    const auto start = clock::now();
    require_blamed(all.ranks[rank].barrier(list, 3 * patience, barrier_kind::binary_tree), {2});
    require(clock::now() < start + 2 * patience, "the rank was not notified in time");
  });
  take(all.ranks[1].peers()[0], memory, filled);
}

}  // namespace

TEST_CASE("a rank that waits for room to post its part of a step processes the reports of others") {
  learn_without_room([](world& mine, const numbers& list) {
    const failing_device failing("ibv_post_send:1=EIO");
    CHECK(mine.barrier(list, patience, barrier_kind::binary_tree).has_error());
  });
}

// This test doesn't run on rxe, where attempts that find the receiver not ready also use up the
// ordinary retry count. So rank 0's requests to rank 1 would fail there before rank 1 detects that
// rank 2 is lost.
TEST_CASE("a rank that waits for room is notified by a rank whose receiver is not ready",
          "[long][not-in-vm]") {
  learn_without_room([](world& mine, const numbers&) { const world gone = std::move(mine); });
}

TEST_CASE("a rank that does not receive requests is reported missing and stays connected") {
  local_worlds all(2, 0, 1);
  memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  std::vector<pending<>> filled = fill(all.ranks[0].peers()[1], memory);
  const group_results late = all.ranks[0].barrier({1, 0}, 50ms, barrier_kind::binary_tree);
  require_blamed(late, {1});
  CHECK(kind_of(late) == error_kind::timed_out);
  take(all.ranks[1].peers()[0], memory, filled);
  CHECK(all.ranks[1].barrier({1, 0}, 50ms, barrier_kind::binary_tree).has_error());
  on_threads(2, [&](std::uint32_t rank) {
    const group_results next = all.ranks[rank].barrier(patience);
    require(next.has_value(), "the next barrier failed");
  });
}

TEST_CASE("a report about a later step does not make an earlier step of a late rank fail") {
  for (const numbers& list : {numbers{1, 2}, numbers{2, 1}}) {
    local_worlds all(3);
    // Before rank 2 enters the first step, rank 1 aborts one step with rank 2, and then another
    // with all ranks.
    for (const numbers& ranks : {list, numbers{0, 1, 2}}) {
      const group_results done = all.ranks[1].barrier(ranks, 50ms);
      CHECK(kind_of(done) == error_kind::timed_out);
      CHECK(std::ranges::count(blamed(done), 2U) == 1);
    }
    const group_results late = all.ranks[2].barrier(list, patience);
    INFO((late.has_value() ? "" : late.error().message()));
    CHECK(late.has_value());
  }
}

TEST_CASE("a late rank reports which rank made another rank abort this step and the next one",
          "[long]") {
  for (const barrier_kind kind : {barrier_kind::binary_tree, barrier_kind::dissemination}) {
    local_worlds all(3);
    const numbers list{1, 0, 2};
    for (int round = 0; round < 2; ++round)
      CHECK(blamed(all.ranks[1].barrier(list, 50ms, kind)) == numbers{0, 2});
    // Rank 0 detects before its limit expires that rank 1 has arrived, so it blames only rank 2.
    CHECK(blamed(all.ranks[0].barrier(list, 2s, kind)) == numbers{2});
    // Rank 2 arrives last, so it finds no rank missing. It reports that the step was aborted
    // because of rank 0.
    const group_results last = all.ranks[2].barrier(list, 2s, kind);
    CHECK(blamed(last) == numbers{0});
    CHECK(kind_of(last) == error_kind::timed_out);
  }
}
TEST_CASE("a late rank detects before its limit that another rank has continued") {
  for (const bool has_report : {true, false}) {
    local_worlds all(3);
    const numbers list{1, 2, 0};
    const auto give_up = [&] {
      CHECK(kind_of(all.ranks[1].barrier(list, 50ms, barrier_kind::binary_tree)) ==
            error_kind::timed_out);
    };
    // Rank 1 abandons the step because of rank 2, and reports this to rank 0. If rank 1 also
    // abandons the next step, rank 0 has a report about each of the two. If another step succeeds
    // in between, there is no report about it, and the report about the third step replaces the
    // report about the first.
    give_up();
    if (!has_report) CHECK(must(all.ranks[1].broadcast(7U, 1, patience)) == 7);
    give_up();
    const auto start = clock::now();
    const group_results late = all.ranks[0].barrier(list, 3 * patience, barrier_kind::binary_tree);
    require_blamed(late, {has_report ? 2U : 1U});
    CHECK(kind_of(late) == error_kind::timed_out);
    CHECK(clock::now() < start + 2 * patience);
  }
}

TEST_CASE("ranks that were reconnected are not blamed when another rank leaves", "[long]") {
  local_worlds all(4);
  break_link(all.ranks[1], all.ranks[2]);
  meeting every(4);
  meeting others(3);
  on_threads(4, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    static_cast<void>(mine.barrier(patience));
    every("the first step to be over");
    if (rank == 1) renew_link(mine, all.ranks[2]);
    every("the link to be back");
    const group_results again = mine.barrier(patience);
    require(again.has_value(), "the second step failed");
    every("the second step to be over");
    if (rank == 3) {
      const world leaves = std::move(mine);
      return;
    }
    require_blamed(mine.barrier(3 * patience), {3});
    others("the others to be notified, too");
  });
}

TEST_CASE("neither of two ranks that have left hides that the other one has left", "[long]") {
  local_worlds all(5);
  for (const std::uint32_t gone : {2U, 3U}) {
    const world leaves = std::move(all.ranks[gone]);
    CHECK(leaves.size() == 5);
  }
  meeting others(3);
  on_threads(5, [&](std::uint32_t rank) {
    if (rank == 2 || rank == 3) return;
    // Each of these barriers still includes ranks 2 and 3, which have left.
    bool has_seen_2 = false;
    bool has_seen_3 = false;
    for (int round = 0; round < 4; ++round) {
      const group_results done = all.ranks[rank].barrier(
          3 * patience, round % 2 == 0 ? barrier_kind::centralized : barrier_kind::dissemination);
      const numbers named = blamed(done);
      require(!named.empty() && std::ranges::includes(numbers{2, 3}, named),
              "neither rank 2 nor rank 3 is blamed");
      const bool sees_2 = std::ranges::count(named, 2U) == 1;
      const bool sees_3 = std::ranges::count(named, 3U) == 1;
      require((sees_2 || !has_seen_2) && (sees_3 || !has_seen_3),
              "the rank that was blamed before is not blamed again");
      has_seen_2 = !all.ranks[rank].peers()[2].is_connected();
      has_seen_3 = !all.ranks[rank].peers()[3].is_connected();
      others("the others to be notified, too");
    }
  });
}

TEST_CASE("a stop request ends a step even if all ranks have arrived") {
  local_worlds all(2);
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::atomic<bool> is_held{false};
    std::atomic<bool> has_ended{false};
    std::chrono::steady_clock::time_point held;
    on_threads(2, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      if (rank == 0) {
        // The rank pauses in the middle of the step, when the value from the other rank has already
        // arrived.
        const auto hold = [&](std::uint32_t a, std::uint32_t b) {
          held = std::chrono::steady_clock::now();
          is_held = true;
          wait_until([&] { return has_ended.load(); }, "the other rank to abort", 2 * patience);
          return a + b;
        };
        require(must(mine.all_reduce(rank, hold, 3 * patience)) == 1, "the sum is wrong");
        return;
      }
      const group_error failed =
          failure_of(mine.all_reduce(rank, std::plus<>(), wait_limit(when_set(is_held))));
      has_ended = true;
      require(failed.peer() == 0U, failed.message().c_str());
      require(static_cast<error>(failed).kind() == error_kind::cancelled,
              "the error kind is wrong");
      shortest = std::min(shortest, std::chrono::steady_clock::now() - held);
    });
  }
  // The blamed rank gets no report, so the step does not wait until one has been delivered.
  CHECK(shortest < 1s);
}

TEST_CASE("the limit of a step ends it even if ranks are silent", "[long]") {
  local_worlds all(3);
  memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  // Rank 2 has posted no receive for this send, so each request that reads from its memory waits
  // behind the send.
  auto waits = must(all.ranks[0].peers()[2].post_send({.elements = must(memory.gather(0, 8))}));
  // Each attempt leaves two requests in the queue behind that send. The queue has room for them.
  auto shortest = clock::duration::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = clock::now();
    const group_results done = all.ranks[0].barrier({0, 1, 2}, 300ms, barrier_kind::binary_tree);
    shortest = std::min(shortest, clock::now() - start);
    CHECK(kind_of(done) == error_kind::timed_out);
    CHECK(std::ranges::count(blamed(done), 1U) == 1);
  }
  // One second is less than the sum of the limit and the longest time to wait for answers.
  CHECK(shortest < 1s);
  must(all.ranks[2].peers()[0].receive({.elements = must(memory.scatter(8, 8))}, patience));
  must(waits.wait(patience));
}

TEST_CASE("the reason for an aborted step is reported before the requests of the step finish") {
  local_worlds all(4);
  const memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  break_link(all.ranks[0], all.ranks[3]);
  // This send is never received, so the request with which rank 0 would signal rank 1 waits behind
  // it.
  auto waits = must(all.ranks[0].peers()[1].post_send({.elements = must(memory.gather(0, 8))}));
  std::atomic<bool> has_left{false};
  std::atomic<bool> is_over_at_0{false};
  on_threads(3, [&](std::uint32_t rank) {
    // Rank 0 waits for rank 3, and rank 2 waits for rank 0.
    const auto start = clock::now();
    const auto until_2_has_left =
        wait_limit(clock::now() + 6 * patience, when_set(std::as_const(has_left)));
    const group_results done = all.ranks[rank].barrier(
        rank == 2 ? wait_limit(3 * patience) : until_2_has_left, barrier_kind::dissemination);
    if (rank == 0) is_over_at_0 = true;
    require(done.has_error(), "the step succeeded");
    if (rank != 2) return;
    const bool was_told_before = !is_over_at_0 && clock::now() < start + 2 * patience;
    has_left = true;
    require_blamed(done, {3});
    require(was_told_before, "the rank was not notified while rank 0 waited");
  });
  CHECK_FALSE(waits.wait(patience).has_value());
}

namespace {

/// A stop token that also counts the calls to `stop_requested`. A rank calls `stop_requested`
/// repeatedly only while it waits.
class watched_wait {
 public:
  watched_wait(std::atomic<std::uint32_t>& asked, const std::atomic<bool>& is_over)
      : asked_(&asked), is_over_(&is_over) {}
  [[nodiscard]] bool stop_requested() const noexcept {
    ++*asked_;
    return *is_over_;
  }

 private:
  std::atomic<std::uint32_t>* asked_;
  const std::atomic<bool>* is_over_;
};

}  // namespace

TEST_CASE("a rank is not blamed without evidence while requests to another rank are in flight") {
  local_worlds all(4);
  const memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  // This send is never received, so rank 0 cannot find out whether rank 1 has arrived.
  auto waits = must(all.ranks[0].peers()[1].post_send({.elements = must(memory.gather(0, 8))}));
  std::array<std::atomic<std::uint32_t>, 4> asked{};
  std::atomic<bool> is_over_at_0{false};
  on_threads(4, [&](std::uint32_t rank) {
    if (rank == 1) return;
    // Rank 0 waits for rank 2, and ranks 2 and 3 wait for rank 1.
    const auto until = [&](const auto& stop) { return wait_limit(clock::now() + patience, stop); };
    if (rank != 0) {
      static_cast<void>(all.ranks[rank].barrier(until(watched_wait(asked[rank], is_over_at_0)),
                                                barrier_kind::dissemination));
      return;
    }
    wait_until([&] { return asked[2] > 10 && asked[3] > 10; }, "ranks 2 and 3 to wait");
    const std::atomic<bool> at_once{true};
    const group_results done =
        all.ranks[0].barrier(until(when_set(at_once)), barrier_kind::dissemination);
    is_over_at_0 = true;
    require_blamed(done, {1});
  });
  CHECK_FALSE(waits.wait(patience).has_value());
}

namespace {

/// Checks that a barrier of all ranks fails at the given ranks because the rank `culprit` has
/// aborted it, and that it fails long before its limit.
void require_told(local_worlds& all, const numbers& ranks, std::uint32_t culprit, error_kind why,
                  barrier_kind kind) {
  on_threads(static_cast<std::uint32_t>(all.ranks.size()), [&](std::uint32_t rank) {
    if (std::ranges::count(ranks, rank) == 0) return;
    const auto start = std::chrono::steady_clock::now();
    const group_results done = all.ranks[rank].barrier(3 * patience, kind);
    require_blamed(done, {culprit});
    require(kind_of(done) == why, done.error().message().c_str());
    require(std::chrono::steady_clock::now() < start + 2 * patience,
            "the rank was not notified in time");
  });
}

}  // namespace

TEST_CASE("a rank that cannot post its part of a step notifies the others") {
  local_worlds all(3);
  {
    const failing_device failing("ibv_post_send:1=EIO");
    const group_results done = all.ranks[1].barrier(3 * patience, barrier_kind::binary_tree);
    REQUIRE(done.has_error());
    CHECK(kind_of(done) == error_kind::driver);
    CHECK_FALSE(done.error().peer());
  }
  require_told(all, {0, 2}, 1, error_kind::driver, barrier_kind::binary_tree);
}

#if !defined(VERBSPP_TEST_SANITIZED)

namespace {

constexpr std::size_t all_there_is = SIZE_MAX;
/// The number of allocations on this thread that will still succeed. Only allocations of arrays
/// with std::nothrow count.
thread_local std::size_t allocations_left = all_there_is;

}  // namespace

// Replaces only the operator for arrays that takes std::nothrow. Other allocations use the usual
// operators.
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left != all_there_is) --allocations_left;
  return ::operator new[](size);
}

TEST_CASE("a rank without memory for a step blames no rank and still counts the step") {
  local_worlds all(3);
  meeting every(3);
  on_threads(3, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    const auto check = [&](const group_results& done) {
      if (rank != 1)
        return require(std::ranges::count(blamed(done), 1U) == 1,
                       "rank 1 is not reported as missing");
      require(blamed(done).empty() && !done.error().peer(), "rank 1 blames a rank");
      require(kind_of(done) == error_kind::resource_exhausted, "the error kind is wrong");
    };
    for (const barrier_kind kind : {barrier_kind::centralized, barrier_kind::dissemination}) {
      if (rank == 1) allocations_left = 0;
      const group_results done = mine.barrier(300ms, kind);
      allocations_left = all_there_is;
      check(done);
      every("the step to be over");
    }
    if (rank == 1) allocations_left = 0;
    const bool has_reduced = mine.all_reduce(rank, std::plus<>(), 300ms).has_value();
    allocations_left = all_there_is;
    require(!has_reduced, "the reduction succeeded");
    every("the reduction to be over");
    require(mine.barrier(patience).has_value(), "the next barrier failed");
    for (int round = 0; round < 3; ++round)
      require(must(mine.all_reduce(rank, std::plus<>(), patience)) == 3, "the next sum is wrong");
  });
}

TEST_CASE("a rank without memory for a step notifies the others") {
  for (const barrier_kind kind : {barrier_kind::centralized, barrier_kind::dissemination}) {
    local_worlds all(4);
    allocations_left = 0;
    const group_results done = all.ranks[1].barrier(3 * patience, kind);
    allocations_left = all_there_is;
    CHECK(kind_of(done) == error_kind::resource_exhausted);
    require_told(all, {0, 2, 3}, 1, error_kind::resource_exhausted, kind);
  }
}

TEST_CASE("the rank that made a step fail is reported even without memory for the results",
          "[long]") {
  local_worlds all(4);
  // In a tree, rank 1 is the only rank that waits for rank 3 and writes to it.
  {
    const world leaves = std::move(all.ranks[3]);
  }
  on_threads(3, [&](std::uint32_t rank) {
    if (rank == 1) {
      // Only one allocation succeeds, and the step needs it for its requests.
      allocations_left = 1;
      const group_results done = all.ranks[1].barrier(3 * patience, barrier_kind::binary_tree);
      allocations_left = all_there_is;
      require(kind_of(done) == error_kind::resource_exhausted, "the error kind is wrong");
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    require_blamed(all.ranks[rank].barrier(3 * patience, barrier_kind::binary_tree), {3});
    require(std::chrono::steady_clock::now() < start + 2 * patience,
            "the rank was not notified in time");
  });
}

#endif

TEST_CASE("an invalid report of a rank is ignored") {
  const testbed bed;
  std::vector<local_bootstrap> launched = local_bootstrap::create(2);
  std::vector<std::byte> introduced(1);
  std::vector<std::byte> not_wanted;
  std::vector<std::optional<world>> made(2);
  on_threads(2, [&](std::uint32_t rank) {
    made[rank].emplace(must(world::join(
        watched_bootstrap{std::move(launched[rank]), rank == 0 ? &introduced : &not_wanted},
        bed.domain.build_channel(), patience)));
  });
  using place = remote_memory<access::remote_write | access::remote_read>;
  const place steps = must(place::decode(std::span(introduced).first(place::encoded_size)));
  registered_buffer<access::local_write, std::uint64_t> word =
      must(registered_buffer<access::local_write, std::uint64_t>::allocate(bed.domain, 1));
  // Reports with invalid kinds of error, or about ranks that do not exist.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> nonsense{
      {1, 2}, {1, 0xffff}, {0x7f, 1}, {13, 1}};
  for (std::uint32_t step = 1; step < 9; ++step) {
    // Rank 1 aborts two steps because rank 0 is late. It sends no report to rank 0, because rank 0
    // is the rank that it blames.
    for (int round = 0; round < 2; ++round)
      CHECK(kind_of(made[1]->barrier({0, 1}, 1ms)) == error_kind::timed_out);
    // A report is stored in a word of kind 5 if the number of its step is even, and of kind 6 if it
    // is odd. There are two words of each kind; the one for rank 1 is the second.
    const std::uint64_t joined = 2 * std::uint64_t{step} - 1;
    const std::size_t at = (joined % 2 == 0 ? 5 : 6) * 2 + 1;
    const auto [kind, culprit] = nonsense[step / 2 % nonsense.size()];
    word[0] = joined << 24U | (step % 2 == 0 ? 1U << 23U : 0U) | kind << 16U | culprit;
    must(made[1]->peers()[0].write(
        {.elements = must(word.gather(0, 1)), .remote = must(steps.slice(8 * at, 8))}));
    // In place of a report from rank 1, rank 0 finds an invalid report about the first of these two
    // steps. Rank 0 ignores it, so both barriers succeed.
    for (int round = 0; round < 2; ++round) {
      const group_results late = made[0]->barrier({0, 1}, patience);
      INFO((late.has_value() ? "" : late.error().message()));
      CHECK(late.has_value());
    }
  }
}

TEST_CASE("a lost rank is detected by a rank that has only posted a receive from it") {
  local_worlds all(2);
  world& mine = all.ranks[0];
  memory_of_ranks memory = must(memory_of_ranks::allocate(all.bed.domain, 64));
  auto waits = must(mine.peers()[1].post_receive({.elements = must(memory.scatter(0, 8))}));
  const auto leave = [](world leaves) { static_cast<void>(leaves); };
  leave(std::move(all.ranks[1]));
  const auto start = std::chrono::steady_clock::now();
  require_blamed(mine.barrier(6 * patience), {1});
  CHECK(std::chrono::steady_clock::now() < start + 3 * patience);
  CHECK_FALSE(waits.wait(patience).has_value());
}

TEST_CASE("a rank that another rank has lost aborts the step whichever rank it waits for") {
  local_worlds all(8);
  break_link(all.ranks[0], all.ranks[1]);
  // Rank 3 waits for the late rank. The others wait for ranks that abort the step.
  constexpr std::uint32_t late = 7;
  std::atomic<std::uint32_t> done{0};
  on_threads(8, [&](std::uint32_t rank) {
    if (rank == late) wait_until([&] { return done == 7; }, "the others to leave", 6 * patience);
    const auto start = std::chrono::steady_clock::now();
    const auto left = all.ranks[rank].barrier(6 * patience, barrier_kind::binary_tree);
    ++done;
    if (rank == late) return;
    require(left.has_error(), "the step succeeded");
    require(std::chrono::steady_clock::now() < start + 3 * patience,
            "the rank was not notified in time");
    require(left.error().failed() == 1 && left.error().peer() <= 1U,
            left.error().message().c_str());
  });
}
