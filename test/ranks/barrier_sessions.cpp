// SPDX-License-Identifier: Apache-2.0
/// \file
/// Sessions, through which event loops take part in barriers of worlds. In most tests, one thread
/// drives all ranks.

#include "../device/channels.hpp"
#include "../device/event_loop.hpp"
#include "../eager.hpp"
#include "sessions.hpp"
#include <verbspp/coroutine.hpp>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

static_assert(FourFunctions<barrier_session>);

namespace {

using routine = eager<transport_result<void>>;

/// Takes part in 20 barriers, and counts those that have ended.
routine take_part(event_loop& loop, world& mine, std::uint32_t& ended) {
  for (int round = 0; round < 20; ++round) {
    VERBSPP_CO_TRY(session, mine.start_barrier(patience));
    VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
    ++ended;
  }
  co_return success();
}

routine wait_for_barrier(event_loop& loop, world& mine,
                         barrier_kind kind = barrier_kind::centralized) {
  VERBSPP_CO_TRY(session, mine.start_barrier(3 * patience, kind));
  VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
  co_return success();
}

routine receive_one(event_loop& loop, channel_pair& ends) {
  VERBSPP_CO_TRY(work, ends.right.post_receive({}));
  VERBSPP_CO_TRYV(ends.left.post_send({}));
  for (;;) {
    VERBSPP_CO_TRYV(co_await loop.async_ready(ends.right));
    if (auto done = work.poll()) {
      VERBSPP_CO_TRYV(*done);
      co_return success();
    }
  }
}

routine poll_hub(event_loop& loop, channel_hub hub) {
  for (;;) {
    VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
    VERBSPP_CO_TRYV(hub.poll());
  }
}

using written_cell = registered_buffer<access::local_write | access::remote_write, std::uint64_t>;

/// Writes to the other of two ranks before each barrier, and checks its own cell after it.
routine write_and_wait(event_loop& loop, world& mine, std::vector<written_cell>& memory) {
  const std::uint32_t other = 1 - mine.rank();
  for (std::uint64_t round = 1; round <= 50; ++round) {
    VERBSPP_CO_TRY(to, memory[other].remote());
    VERBSPP_CO_TRYV(co_await mine.peers()[other].async_write(
        {.elements = inline_payload(round), .remote = to}));
    VERBSPP_CO_TRY(session, mine.start_barrier(patience));
    VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
    if (memory[mine.rank()][0] < round)
      co_return error(error_kind::mismatch, "barrier", "the value has not arrived");
  }
  co_return success();
}

routine send_and_drop(channel& link, std::optional<barrier_session>& session) {
  const auto sent = co_await link.async_send({});
  session.reset();
  VERBSPP_CO_TRYV(sent);
  co_return success();
}

}  // namespace

TEST_CASE("one thread drives a barrier on several ranks, and none is done before all arrive") {
  for (const std::uint32_t count : {1U, 2U, 3U, 5U}) {
    local_worlds all(count);
    for (const barrier_kind kind : all_kinds)
      for (std::uint32_t late = 0; late < count; ++late) {
        CAPTURE(count, to_string(kind), late);
        numbers early;
        for (std::uint32_t rank = 0; rank < count; ++rank)
          if (rank != late) early.push_back(rank);
        sessions started = start(all.ranks, early, patience, kind);
        if (late == 0) check_none_is_done(started);
        REQUIRE(poll_each(started) == 0);
        started[late].emplace(must(all.ranks[late].start_barrier(patience, kind)));
        for (const auto& result : finish(started)) CHECK(result->has_value());
      }
  }
}

TEST_CASE("sessions and blocking calls take part in the same barrier") {
  constexpr std::uint32_t count = 4;
  local_worlds all(count);
  for (const barrier_kind kind : all_kinds) {
    std::atomic<std::uint32_t> come{0};
    on_threads(count, [&](std::uint32_t rank) {
      for (std::uint32_t round = 1; round <= 10; ++round) {
        ++come;
        if ((rank + round) % 2 == 0) {
          require(all.ranks[rank].barrier(patience, kind).has_value(),
                  "the blocking barrier failed");
        } else {
          barrier_session session = must(all.ranks[rank].start_barrier(patience, kind));
          if (rank == 0)
            serve(session, [&] { return must(session.poll()); });  // woken by its descriptor
          require(std::move(session).run().has_value(), "the session failed");
        }
        require(come >= round * count, "a rank left the barrier before all had arrived");
      }
    });
  }
}

TEST_CASE("sessions of the ranks in a list do not wait for other ranks") {
  local_worlds all(4);
  for (int round = 0; round < 5; ++round) {
    sessions started(2);
    {
      // The session copies the list.
      const numbers list{3, 1};
      started[0].emplace(must(all.ranks[1].start_barrier(list, patience)));
      started[1].emplace(must(all.ranks[3].start_barrier(list, patience)));
    }
    for (const auto& result : finish(started)) CHECK(result->has_value());
  }
  for (const numbers& wrong : {numbers{1, 2}, numbers{0, 0}, numbers{0, 4}, numbers{}}) {
    const error refused = failure_of(all.ranks[0].start_barrier(wrong, patience));
    CHECK(refused.kind() == error_kind::invalid_input);
  }
  check_next_barrier(all.ranks);
}

TEST_CASE("an event loop serves other sources while its coroutines await barriers") {
  constexpr std::uint32_t count = 3;
  local_worlds all(count);
  channel_pair ends = connect_channels(all.bed.domain.build_channel().waiting(wait_mode::sleep()));
  event_loop loop;
  std::uint32_t rounds_of_0 = 0;
  std::uint32_t of_others = 0;
  std::vector<routine> running;
  running.push_back(take_part(loop, all.ranks[0], rounds_of_0));
  running.push_back(take_part(loop, all.ranks[1], of_others));
  // Rank 2 begins only after a message has arrived on a channel, while the others wait.
  routine receiving = receive_one(loop, ends);
  while (!receiving.is_done()) REQUIRE(must(loop.run_once(patience)));
  CHECK(receiving.get().has_value());
  CHECK(rounds_of_0 == 0);
  running.push_back(take_part(loop, all.ranks[2], of_others));
  while (!std::ranges::all_of(running, [](const routine& each) { return each.is_done(); }))
    REQUIRE(must(loop.run_once(patience)));
  for (routine& each : running) CHECK(each.get().has_value());
  CHECK(rounds_of_0 == 20);
}

TEST_CASE("one event loop serves the channels of a world and awaits its barriers") {
  local_worlds all(2, 16, 16, wait_mode::sleep());
  std::vector<written_cell> memory;
  memory.reserve(2);
  for (int rank = 0; rank < 2; ++rank)
    memory.push_back(must(written_cell::allocate(all.bed.domain, 1)));
  event_loop loop;
  const routine polling_0 = poll_hub(loop, all.ranks[0].peers().hub());
  const routine polling_1 = poll_hub(loop, all.ranks[1].peers().hub());
  routine first = write_and_wait(loop, all.ranks[0], memory);
  routine second = write_and_wait(loop, all.ranks[1], memory);
  while (!first.is_done() || !second.is_done()) REQUIRE(must(loop.run_once(patience)));
  CHECK(first.get().has_value());
  CHECK(second.get().has_value());
}

TEST_CASE("a coroutine that is destroyed while it awaits a barrier aborts the barrier") {
  local_worlds all(2);
  event_loop loop;
  // The coroutine is destroyed when it has just been suspended, or after some rounds of the loop.
  for (const int rounds : {0, 1, 5}) {
    {
      const routine waiting = wait_for_barrier(loop, all.ranks[0]);
      for (int round = 0; round < rounds; ++round) must(loop.run_once(patience));
      CHECK_FALSE(waiting.is_done());
    }
    sessions other = start(all.ranks, {1}, 3 * patience, barrier_kind::centralized);
    check_blamed(finish(other)[1], {0}, error_kind::cancelled);
    check_next_barrier(all.ranks);
  }
}

TEST_CASE("a coroutine may be destroyed when all ranks have arrived, but before it is resumed") {
  local_worlds all(2);
  event_loop loop;
  for (const barrier_kind kind : {barrier_kind::centralized, barrier_kind::dissemination}) {
    sessions other;
    {
      const routine waiting = wait_for_barrier(loop, all.ranks[0], kind);
      other = start(all.ranks, {1}, 3 * patience, kind);
      CHECK_FALSE(waiting.is_done());
    }
    // Rank 1 succeeds if it needs only signals that rank 0 sent before the coroutine was destroyed.
    const auto results = finish(other);
    CHECK((results[1]->has_value() || blamed(*results[1]) == numbers{0}));
    check_next_barrier(all.ranks);
  }
}

TEST_CASE("an awaited barrier fails with the same kind of error as a blocking one") {
  local_worlds all(2);
  event_loop loop;
  routine waiting = wait_for_barrier(loop, all.ranks[0]);
  static_cast<void>(all.ranks[0].peers()[1].close());
  while (!waiting.is_done()) REQUIRE(must(loop.run_once(patience)));
  const error awaited = failure_of(waiting.get());
  const group_results blocking = all.ranks[0].barrier(patience, barrier_kind::centralized);
  CHECK(awaited.kind() == kind_of(blocking));
}

TEST_CASE(
    "sessions blame the missing ranks when their limit is reached, and the next barrier works",
    "[long]") {
  local_worlds all(5);
  for (const barrier_kind kind : {barrier_kind::centralized, barrier_kind::dissemination}) {
    CAPTURE(to_string(kind));
    sessions started = start(all.ranks, {0, 1, 3}, 2000ms, kind);
    const auto results = finish(started);
    for (const std::uint32_t rank : {0U, 1U, 3U}) {
      INFO(results[rank]->message());
      CHECK(std::ranges::includes(blamed(*results[rank]), numbers{2, 4}));
      CHECK(kind_of(*results[rank]) == error_kind::timed_out);
      CHECK(all.ranks[rank].peers().connected().size() == 5);
    }
    // The late ranks arrive after the others have given up.
    sessions late = start(all.ranks, {2, 4}, 50ms, kind);
    static_cast<void>(finish(late));
    check_next_barrier(all.ranks);
  }
}

TEST_CASE("repeated requests for a notification do not postpone it") {
  local_worlds all(2);
  sessions started = start(all.ranks, {0}, patience);
  for (int round = 0; round < 10; ++round) {
    CHECK_FALSE(must(started[0]->request_notification()));
    // steady: the timer expires during this pause, since it is never set to more than 1 ms
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(must(started[0]->request_notification()));
    pollfd entry{.fd = started[0]->file_descriptor(), .events = POLLIN, .revents = 0};
    CHECK(::poll(&entry, 1, 0) == 1);
    CHECK_FALSE(must(started[0]->poll()));
    CHECK_FALSE(must(started[0]->request_notification()));
  }
  CHECK(all.ranks[1].barrier(patience));
  CHECK(finish(started)[0]->has_value());
}

TEST_CASE("a stop request ends a session") {
  local_worlds all(2);
  std::stop_source stop;
  sessions started(2);
  started[0].emplace(must(all.ranks[0].start_barrier(stop.get_token())));
  check_none_is_done(started);
  stop.request_stop();
  check_blamed(finish(started)[0], {1}, error_kind::cancelled);
  static_cast<void>(all.ranks[1].barrier(50ms));
  check_next_barrier(all.ranks);
}

TEST_CASE("sessions blame a rank that has left, and do so before their limit", "[long]") {
  for (const barrier_kind kind : {barrier_kind::centralized, barrier_kind::dissemination}) {
    local_worlds all(3);
    sessions started = start(all.ranks, {0, 1}, 6 * patience, kind);
    check_none_is_done(started);
    {
      const world leaves = std::move(all.ranks[2]);
    }
    const auto results = finish(started, 3 * patience);
    for (const std::uint32_t rank : {0U, 1U}) {
      INFO(results[rank]->message());
      CHECK(blamed(*results[rank]) == numbers{2});
    }
  }
}

TEST_CASE("a session blames a rank if the connection to it is closed during the barrier") {
  local_worlds all(3);
  sessions started = start(all.ranks, {0, 2}, 3 * patience, barrier_kind::centralized);
  check_none_is_done(started);
  static_cast<void>(all.ranks[0].peers()[1].close());
  const auto results = finish(started);
  CHECK(blamed(*results[0]) == numbers{1});
  CHECK(blamed(*results[2]) == numbers{1});
  CHECK_FALSE(all.ranks[1].barrier(3 * patience, barrier_kind::centralized));
  on_threads(3, [&](std::uint32_t rank) { must(all.ranks[rank].mend(patience)); });
  check_next_barrier(all.ranks);
}

TEST_CASE("a session blames a rank whose channel the program has taken out of the world") {
  local_worlds all(3);
  sessions started = start(all.ranks, {0}, 3 * patience, barrier_kind::dissemination);
  check_none_is_done(started);
  const channel taken = std::move(all.ranks[0].peers()[2]);
  CHECK(blamed(*finish(started)[0]) == numbers{2});
}

TEST_CASE("a session blames a rank whose channel the program has replaced") {
  local_worlds all(2);
  group& peers = all.ranks[0].peers();
  sessions started = start(all.ranks, {0}, wait_limit::forever());
  check_none_is_done(started);
  {
    const channel taken = peers.remove(1);
  }
  must(peers.put(1, channel(must(all.bed.domain.build_channel().hub(peers.hub()).build()))));
  must(peers[1].handshake(peers[1].endpoint()));
  check_blamed(finish(started)[0], {1}, error_kind::not_connected);
}

TEST_CASE("a session and later steps fail if the group is moved out of the world") {
  const bool is_lazy = GENERATE(false, true);
  const bool destroys = GENERATE(false, true);
  CAPTURE(is_lazy, destroys);
  std::optional<local_worlds> connected;
  std::optional<lazy_worlds> lazy;
  std::vector<world>& ranks = is_lazy ? lazy.emplace(3).ranks : connected.emplace(3).ranks;
  sessions started = start(ranks, {0}, patience, barrier_kind::dissemination);
  check_none_is_done(started);
  std::optional<group> taken = std::move(ranks[0].peers());
  if (destroys) taken.reset();
  SECTION("the session ends") {
    const auto ended = finish(started);
    REQUIRE(ended[0]->has_error());
    CHECK(kind_of(*ended[0]) == error_kind::not_connected);
    CHECK_THAT(ended[0]->message(), Catch::Contains("moved it out of the world"));
    CHECK(kind_of(ranks[0].barrier({0, 1}, patience)) == error_kind::not_connected);
    CHECK(kind_of(ranks[0].barrier(patience)) == error_kind::not_connected);
    CHECK(failure_of(ranks[0].start_barrier(patience)) == error_kind::not_connected);
    CHECK(static_cast<error>(failure_of(ranks[0].mend(patience))) == error_kind::not_connected);
  }
  SECTION("the session is destroyed") { started[0].reset(); }
  SECTION("the world is destroyed") { ranks.erase(ranks.begin()); }
}

TEST_CASE("the program may destroy channels of the world over which a session has sent signals") {
  for (const bool destroys : {false, true}) {
    CAPTURE(destroys);
    local_worlds all(3);
    sessions started = start(all.ranks, {0}, 3 * patience, barrier_kind::dissemination);
    check_none_is_done(started);
    for (const std::uint32_t rank : {1U, 2U}) {
      const channel taken = all.ranks[0].peers().remove(rank);
    }
    if (destroys)
      started[0].reset();
    else
      CHECK(finish(started)[0]->has_error());
  }
}

TEST_CASE("destroying a session notifies the other ranks, and the next barrier works") {
  local_worlds all(4);
  for (const barrier_kind kind : all_kinds) {
    CAPTURE(to_string(kind));
    sessions started = start(all.ranks, {0, 1, 2}, 3 * patience, kind);
    check_none_is_done(started);
    started[0].reset();
    const auto results = finish(started);
    for (const std::uint32_t rank : {1U, 2U})
      check_blamed(results[rank], {0}, error_kind::cancelled);
    // Rank 0 had arrived, so the barrier may succeed for the last rank. In a centralized barrier,
    // it fails, because the last rank needs an answer from rank 0.
    const group_results last = all.ranks[3].barrier(3 * patience, kind);
    CHECK((last.has_value() || blamed(last) == numbers{0}));
    if (kind == barrier_kind::centralized) CHECK(kind_of(last) == error_kind::cancelled);
    check_next_barrier(all.ranks);
  }
}

TEST_CASE("a blocking barrier ends when another rank destroys its session") {
  local_worlds all(2);
  on_threads(2, [&](std::uint32_t rank) {
    if (rank == 0) {
      const barrier_session dropped =
          must(all.ranks[0].start_barrier(3 * patience, barrier_kind::centralized));
      return;
    }
    const auto start = clock::now();
    const group_results done = all.ranks[1].barrier(3 * patience, barrier_kind::centralized);
    require(clock::now() < start + 2 * patience, "the rank was not notified in time");
    // Both ranks may have arrived before the session was destroyed.
    if (done.has_value()) return;
    require(blamed(done) == numbers{0}, "rank 0 is not blamed");
    require(kind_of(done) == error_kind::cancelled, "the error kind is wrong");
  });
  check_next_barrier(all.ranks);
}

TEST_CASE("neither the limit nor the destructor of a session waits for a queue that is blocked") {
  for (const bool destroys : {false, true}) {
    CAPTURE(destroys);
    local_worlds all(3);
    buffer<> from(all.bed.domain, pattern(64, 1));
    // No receive is posted for this send, so the signal to rank 1 waits behind it.
    auto blocks = must(all.ranks[0].peers()[1].post_send({.elements = from.gather()}));
    const auto begun = clock::now();
    sessions started =
        start(all.ranks, {0}, destroys ? wait_limit(6 * patience) : wait_limit(300ms));
    check_none_is_done(started);
    if (destroys)
      started[0].reset();
    else
      CHECK(finish(started)[0]->has_error());
    CHECK(clock::now() < begun + patience);
    CHECK_FALSE(blocks.wait(patience).has_value());
    CHECK_FALSE(all.ranks[0].peers()[1].is_connected());
  }
}

TEST_CASE("advancing a session resumes no coroutine, which might destroy the session") {
  local_worlds all(2);
  channel& link = all.ranks[0].peers()[1];
  auto arrives = must(all.ranks[1].peers()[0].post_receive({}));
  sessions started = start(all.ranks, {0}, 3 * patience, barrier_kind::centralized);
  const routine sending = send_and_drop(link, started[0]);
  must(arrives.wait(patience));
  check_none_is_done(started);
  CHECK_FALSE(sending.is_done());
  // The hub still reports the channel.
  const channel_hub& hub = all.ranks[0].peers().hub();
  wait_until([&] { return must(hub.poll()), sending.is_done(); }, "the coroutine");
  CHECK_FALSE(started[0]);
  const group_results other = all.ranks[1].barrier(3 * patience, barrier_kind::centralized);
  CHECK(blamed(other) == numbers{0});
}

TEST_CASE("a world with a session in progress refuses other steps") {
  local_worlds all(2);
  world& mine = all.ranks[0];
  sessions started = start(all.ranks, {0}, patience);
  CHECK(kind_of(mine.barrier(patience)) == error_kind::busy);
  CHECK(kind_of(mine.barrier({0}, patience)) == error_kind::busy);
  const auto is_busy = [](const auto& outcome) {
    const error failed = failure_of(outcome);
    return failed.kind() == error_kind::busy;
  };
  static_cast<void>(mine.peers().manual_scope([&](group_scope& scope) {
    CHECK(kind_of(mine.barrier(scope, patience)) == error_kind::busy);
  }));
  CHECK(failure_of(mine.start_barrier(patience)).kind() == error_kind::busy);
  CHECK(is_busy(mine.all_gather(1, patience)));
  CHECK(is_busy(mine.gather(1, 0, patience)));
  CHECK(is_busy(mine.broadcast(1, 0, patience)));
  CHECK(is_busy(mine.all_reduce(1, std::plus<>(), patience)));
  CHECK(is_busy(mine.mend(patience)));
  CHECK(kind_of(std::move(*started[0]).finish()) == error_kind::busy);
  // The refused calls had no effect, and the session can still be used.
  started[1].emplace(must(all.ranks[1].start_barrier(patience)));
  for (const auto& result : finish(started)) CHECK(result->has_value());
  on_threads(2, [&](std::uint32_t rank) {
    const auto sum = must(all.ranks[rank].all_reduce(rank, std::plus<>(), patience));
    require(sum == 1, "the sum is wrong");
  });
}

TEST_CASE("the next barrier may start before the results of the last one are taken") {
  local_worlds all(2);
  sessions first = start(all.ranks, {0, 1}, patience);
  wait_until([&] { return poll_each(first) == 2; }, "the end of the barrier");
  check_next_barrier(all.ranks);
  for (const auto& result : finish(first)) CHECK(result->has_value());
}

TEST_CASE("a step that the function of all_reduce begins is refused") {
  local_worlds all(2);
  on_threads(2, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    const auto combine = [&](std::uint32_t left, std::uint32_t right) {
      require(kind_of(mine.barrier(patience)) == error_kind::busy, "the step was not refused");
      return left + right;
    };
    require(must(mine.all_reduce(rank, combine, patience)) == 1, "the sum is wrong");
    require(mine.barrier(patience).has_value(), "the next step failed");
  });
}

TEST_CASE("a session and its world may be moved") {
  local_worlds all(2);
  barrier_session first = must(all.ranks[0].start_barrier(patience));
  const int descriptor = first.file_descriptor();
  CHECK(descriptor >= 0);
  barrier_session moved = std::move(first);
  CHECK(moved.file_descriptor() == descriptor);
  // NOLINTBEGIN(bugprone-use-after-move)
  CHECK(first.file_descriptor() == -1);
  CHECK(failure_of(first.poll()).kind() == error_kind::invalid_input);
  CHECK(failure_of(first.request_notification()).kind() == error_kind::invalid_input);
  CHECK(kind_of(std::move(first).finish()) == error_kind::invalid_input);
  CHECK(kind_of(std::move(first).run()) == error_kind::invalid_input);
  // NOLINTEND(bugprone-use-after-move)
  world elsewhere = std::move(all.ranks[0]);
  CHECK(failure_of(all.ranks[0].start_barrier(patience)).kind() == error_kind::invalid_input);
  barrier_session other = must(all.ranks[1].start_barrier(patience));
  CHECK_FALSE(must(moved.request_notification()));
  wait_until([&] { return must(moved.poll()) && must(other.poll()); }, "the barrier");
  CHECK(must(moved.request_notification()));
  CHECK(std::move(moved).finish().has_value());
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK(kind_of(std::move(moved).finish()) == error_kind::invalid_input);
  // Assignment aborts the previous barrier.
  moved = must(elsewhere.start_barrier(3 * patience, barrier_kind::centralized));
  moved = std::move(other);
  const group_results done = all.ranks[1].barrier(3 * patience, barrier_kind::centralized);
  CHECK(blamed(done) == numbers{0});
  CHECK(std::move(moved).finish().has_value());
}

TEST_CASE("a session whose world is destroyed is cancelled, and the others are notified") {
  local_worlds all(3);
  sessions started = start(all.ranks, {0, 1}, 3 * patience, barrier_kind::centralized);
  check_none_is_done(started);
  {
    const world leaves = std::move(all.ranks[1]);
  }
  CHECK(must(started[1]->poll()));
  const auto results = finish(started);
  CHECK_FALSE(results[1]->error().peer());
  CHECK(kind_of(*results[1]) == error_kind::cancelled);
  CHECK(blamed(*results[0]) == numbers{1});
}
