// SPDX-License-Identifier: Apache-2.0
/// \file
/// Sessions of barriers in lazy worlds, whose ranks are connected when they first exchange signals.

#include "../device/channels.hpp"
#include "sessions.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A bootstrap that returns no values while `is_stalled` is true.
struct stalling_bootstrap : passing_bootstrap {
  const std::atomic<bool>* is_stalled;
  result<std::size_t> get(std::uint32_t from, std::string_view key, std::span<std::byte> into,
                          const wait_limit& limit) {
    while (*is_stalled && !limit.has_passed()) std::this_thread::yield();
    if (*is_stalled) return limit.failure("get the value of a rank");
    return of.get(from, key, into, limit);
  }
};

/// The two ranks of a lazy world. They cannot read each other's addresses while `is_stalled` is
/// true.
struct stalled_worlds {
  stalled_worlds() {
    std::vector<local_bootstrap> launched = local_bootstrap::create(2);
    on_threads(2, [&](std::uint32_t rank) {
      made[rank].emplace(
          must(world::join_lazily(stalling_bootstrap{{std::move(launched[rank])}, &is_stalled},
                                  bed.domain.build_channel(), patience)));
    });
    is_stalled = true;
  }

  testbed bed{};
  std::atomic<bool> is_stalled{false};
  std::vector<std::optional<world>> made = std::vector<std::optional<world>>(2);
};

}  // namespace

TEST_CASE("one thread connects the ranks of a lazy world by sessions") {
  lazy_worlds all(4);
  for (const barrier_kind kind : all_kinds) {
    CAPTURE(to_string(kind));
    sessions started = start(all.ranks, {1, 2, 3}, patience, kind);
    check_none_is_done(started);
    started[0].emplace(must(all.ranks[0].start_barrier(patience, kind)));
    for (const auto& result : finish(started)) CHECK(result->has_value());
  }
}

TEST_CASE("a session that waits only for its requests answers other ranks of a lazy world") {
  lazy_worlds all(3);
  on_threads(2, [&](std::uint32_t rank) {
    require(all.ranks[rank].peers().connect({1 - rank}, patience).has_value(),
            "ranks 0 and 1 were not connected");
  });
  buffer<> memory(all.bed.domain, pattern(64, 1));
  // No receive is posted for this send yet, so the signal to rank 1 waits behind it.
  auto blocks = must(all.ranks[0].peers()[1].post_send({.elements = memory.gather()}));
  sessions started(2);
  for (const std::uint32_t rank : {1U, 0U})
    started[rank].emplace(
        must(all.ranks[rank].start_barrier({0, 1}, 3 * patience, barrier_kind::centralized)));
  check_none_is_done(started);
  while_served([&] { static_cast<void>(started[0]->poll()); },
               [&] {
                 require(all.ranks[2].peers().connect({0}, patience).has_value(),
                         "rank 0 did not answer");
               });
  buffer<> into(all.bed.domain, 64);
  auto received = must(all.ranks[1].peers()[0].post_receive({.elements = into.scatter()}));
  for (const auto& result : finish(started)) CHECK(result->has_value());
  CHECK(blocks.wait(patience).has_value());
  CHECK(received.wait(patience).has_value());
}

TEST_CASE("a loop that polls the group of a lazy world answers other ranks") {
  lazy_worlds all(2);
  group& peers = all.ranks[0].peers();
  const auto due = peers.deadline();
  CHECK(due <= clock::now() + 1ms);
  while_served([&] { must(peers.poll()); },
               [&] {
                 require(all.ranks[1].peers().connect({0}, patience).has_value(),
                         "rank 0 did not answer");
               });
  CHECK(peers[1].is_connected());
}

TEST_CASE("a session waits for the addresses of ranks longer than one call may take") {
  stalled_worlds all;
  sessions started(2);
  for (const std::uint32_t rank : {0U, 1U})
    started[rank].emplace(must(all.made[rank]->start_barrier(3 * patience)));
  for (int round = 0; round < 2; ++round) REQUIRE(poll_each(started) == 0);
  all.is_stalled = false;
  for (const auto& result : finish(started)) CHECK(result->has_value());
}

TEST_CASE("a session may be destroyed while the addresses of ranks are missing") {
  stalled_worlds all;
  sessions started(1);
  started[0].emplace(must(all.made[0]->start_barrier(3 * patience)));
  REQUIRE(poll_each(started) == 0);
  started[0].reset();
  all.is_stalled = false;
  static_cast<void>(all.made[1]->barrier(50ms));
  on_threads(2, [&](std::uint32_t rank) {
    require(all.made[rank]->barrier(patience).has_value(), "the next barrier failed");
  });
}

TEST_CASE("a session in a lazy world blames a rank that does not answer", "[long]") {
  lazy_worlds all(3);
  sessions started = start(all.ranks, {0, 1}, 2000ms, barrier_kind::centralized);
  const auto results = finish(started);
  check_blamed(results[0], {2}, error_kind::timed_out);
  CHECK(results[1]->has_error());
  static_cast<void>(all.ranks[2].barrier(50ms));
  on_threads(3, [&](std::uint32_t rank) { must(all.ranks[rank].mend(patience)); });
  check_next_barrier(all.ranks);
}

TEST_CASE("a session that still connects ranks of a lazy world can be destroyed") {
  lazy_worlds all(2);
  const auto begun = clock::now();
  sessions started = start(all.ranks, {0}, 6 * patience);
  check_none_is_done(started);
  started[0].reset();
  CHECK(clock::now() < begun + patience);
}
