// SPDX-License-Identifier: Apache-2.0
// Coroutines that await streams, posted requests, room in a queue, and requests that borrow memory.

#include "coroutines.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using scoped = eager<scope_result<void>>;

}  // namespace

TEST_CASE("a coroutine awaits every operation with borrowed memory in a scope") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  buffer<all_rights | access::remote_atomic> mine(bed.domain, pattern(64, 1));
  buffer<all_rights | access::remote_atomic> theirs(bed.domain, 64);
  buffer<> into(bed.domain, 64);
  std::optional<std::uint32_t> received;
  const auto receive = [&]() -> routine {
    async_scope scope(ends.right);
    VERBSPP_CO_TRY(done, co_await scope.async_receive({.elements = into.scatter()}));
    received = done.byte_count();
    VERBSPP_CO_TRYV(co_await scope.async_finish());
    co_return success();
  };
  const auto work = [&]() -> routine {
    const auto remote = theirs.remote();
    const auto word = must(remote_word::at(remote, 0));
    async_scope scope(ends.left);
    VERBSPP_CO_TRYV(co_await scope.async_write({.elements = mine.gather(), .remote = remote}));
    VERBSPP_CO_TRYV(co_await scope.async_read(
        {.elements = mine.scatter(8, 8), .remote = must(remote.slice(0, 8))}, patience));
    VERBSPP_CO_TRYV(co_await scope.async_fetch_and_add(
        {.result = mine.scatter(16, 8), .remote = word, .addend = 0}));
    VERBSPP_CO_TRYV(co_await scope.async_compare_and_swap(
        {.result = mine.scatter(24, 8), .remote = word, .expected = 0, .desired = 0}));
    VERBSPP_CO_TRYV(co_await scope.async_send({.elements = mine.gather(0, 16)}));
    VERBSPP_CO_TRYV(co_await scope.async_finish());
    co_return success();
  };
  routine receiving = receive();
  routine working = work();
  must(run(working, ends.left));
  must(run(receiving, ends.right));
  CHECK(received == 16);
  CHECK(theirs.bytes() == pattern(64, 1));
  for (const std::ptrdiff_t offset : {8, 16, 24})
    CHECK(
        std::equal(mine.bytes().begin(), mine.bytes().begin() + 8, mine.bytes().begin() + offset));
}

TEST_CASE("a scope whose coroutine is destroyed waits until the device has released its memory") {
  const testbed bed;
  channel_pair ends =
      connect_channels(bed.domain.build_channel().default_limit(short_limit).max_inline_data(64));
  buffer<> into(bed.domain, 64);
  const auto receive = [&]() -> routine {
    async_scope scope(ends.right);
    VERBSPP_CO_TRYV(co_await scope.async_receive({.elements = into.scatter()}, patience));
    co_return success();
  };
  {
    const routine waiting = receive();
    ends.right.poll();
    CHECK(ends.right.outstanding() == 1);
  }
  // No message has arrived, so only the loss of the connection can have released the memory.
  CHECK(ends.right.outstanding() == 0);
  CHECK(ends.right.state() == channel_state::broken);
  CHECK(ends.right.failure()->root() == error_kind::timed_out);
}

TEST_CASE("scopes of several coroutines are open on one channel at the same time") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  buffer<> from(bed.domain, pattern(64, 3));
  buffer<> to(bed.domain, 64);
  const auto write = [&](std::size_t first) -> routine {
    async_scope scope(ends.left);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = first + 16 * i;
      VERBSPP_CO_TRYV(co_await scope.async_write(
          {.elements = from.gather(at, 8), .remote = must(to.remote().slice(at, 8))}));
    }
    VERBSPP_CO_TRYV(co_await scope.async_finish());
    co_return success();
  };
  // The queue was requested with room for four requests, so some of the six writers may have to
  // wait.
  std::vector<routine> writers;
  for (const std::size_t first : {0, 8, 0, 8, 0, 8}) writers.push_back(write(first));
  for (routine& each : writers) must(run(each, ends.left));
  CHECK(to.bytes() == from.bytes());
  CHECK(ends.left.outstanding() == 0);
}

TEST_CASE("a scope awaits all posted requests and reports failures whose results were not taken") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  buffer<> from(bed.domain, pattern(64, 4));
  buffer<> to(bed.domain, 64);
  const bool fails = GENERATE(false, true);
  const auto write = [&]() -> scoped {
    async_scope scope(ends.left);
    const auto remote = to.remote();
    // If `fails`, the peer's device refuses this rkey.
    const remote_memory<access::remote_write> wrong(
        remote.address(), 8, remote_key(remote.rkey().value() ^ (fails ? 0x00a50000U : 0U)));
    CHECK(scope.post_write({.elements = from.gather(0, 8), .remote = wrong}).has_value());
    CHECK(scope.post_write({.elements = from.gather(8, 8), .remote = remote}).has_value());
    auto last = must(scope.post_write({.elements = from.gather(), .remote = remote}));
    const auto taken = co_await last.async_wait();
    CHECK(taken.has_value() != fails);
    co_return co_await scope.async_finish();
  };
  scoped writing = write();
  scope_result<void>& ended = run(writing, ends.left);
  if (!fails) {
    must(ended);
    return;
  }
  const scope_error failed = failure_of(ended);
  CHECK(failed.failed() == 1);
  CHECK(failed.flushed() == 1);
}

namespace {

/// Writes `pieces` pieces of 8 bytes, as a stream that asks to signal every third request. A short
/// queue limits that to every second one.
scoped write_in_pieces(channel& link, const buffer<>& from, buffer<>& to, std::size_t pieces) {
  async_stream stream(link, {.signal_every = 3});
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t at = 8 * i % from.size();
    VERBSPP_CO_TRYV(co_await stream.async_room(1, patience));
    VERBSPP_CO_TRYV(stream.post_write(
        {.elements = from.gather(at, 8), .remote = must(to.remote().slice(at, 8))}));
  }
  VERBSPP_CO_TRYV(co_await stream.async_finish(patience));
  co_return success();
}

}  // namespace

TEST_CASE("a coroutine posts a stream of more requests than the queue can hold") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const buffer<> from(bed.domain, pattern(64, 3));
  buffer<> to(bed.domain, 64);
  // With some of these numbers of pieces, the last request is unsignaled.
  for (const std::size_t pieces : {0, 1, 2, 3, 4, 5, 50}) {
    scoped writing = write_in_pieces(ends.left, from, to, pieces);
    must(run(writing, ends.left));
    CHECK(ends.left.outstanding() == 0);
    CHECK(ends.left.is_connected());
  }
  CHECK(to.bytes() == from.bytes());
}

TEST_CASE("two coroutines post streams to one channel at the same time") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const buffer<> from(bed.domain, pattern(64, 4));
  buffer<> to(bed.domain, 64);
  scoped first = write_in_pieces(ends.left, from, to, 31);
  scoped second = write_in_pieces(ends.left, from, to, 32);
  must(run(first, ends.left));
  must(run(second, ends.left));
  CHECK(ends.left.outstanding() == 0);
  CHECK(to.bytes() == from.bytes());
}

TEST_CASE("a stream reports a failed request and a limit that expires") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  buffer<> memory(bed.domain, 64);
  const auto fail = [&]() -> scoped {
    async_stream stream(ends.left, {.signal_every = 8});
    VERBSPP_CO_TRYV(stream.post_write(
        {.elements = memory.gather(),
         .remote = remote_memory<access::remote_write>(8, 64, remote_key(0x7777U))}));
    VERBSPP_CO_TRYV(co_await stream.async_finish(patience));
    co_return success();
  };
  const auto send_without_receive = [&]() -> scoped {
    async_stream stream(ends.left, {.signal_every = 8});
    while (stream.post_send({.elements = memory.gather()}).has_value()) continue;
    VERBSPP_CO_TRYV(co_await stream.async_finish(short_limit));
    co_return success();
  };
  SECTION("a request that fails") {
    scoped writing = fail();
    const scope_error failed = failure_of(run(writing, ends.left));
    CHECK(failed.failed() == 1);
  }
  SECTION("a limit that expires while the queue is full of requests") {
    scoped sending = send_without_receive();
    CHECK(error(failure_of(run(sending, ends.left))) == error_kind::timed_out);
  }
  SECTION("a coroutine that is destroyed") {
    // Destroying the coroutine waits until the default limit expires.
    ends = connect_channels(bed.domain.build_channel().default_limit(short_limit));
    {
      const scoped sending = send_without_receive();
    }
    CHECK(ends.left.outstanding() == 0);
  }
  CHECK(ends.left.state() == channel_state::broken);
}

TEST_CASE("a full queue refuses a request that is posted in an awaited scope") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const auto fill = [&]() -> routine {
    async_scope scope(ends.left);
    for (;;) {
      const auto posted = scope.post_send({.elements = inline_payload(1U)});
      if (posted.has_value()) continue;
      CHECK(error(posted.error()) == error_kind::would_block);
      break;
    }
    VERBSPP_CO_TRYV(co_await scope.async_finish());
    co_return success();
  };
  routine filling = fill();
  // The peer posts its receives only now.
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  const inbox messages = must(inbox::open(ends.right, pool));
  must(run(filling, ends.left));
}

TEST_CASE("the limit of a wait for the end of a scope breaks the channel") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  buffer<> into(bed.domain, 64);
  std::stop_source stop;
  const bool is_stopped = GENERATE(false, true);
  const auto receive = [&]() -> scoped {
    async_scope scope(ends.right);
    CHECK(scope.post_receive({.elements = into.scatter()}).has_value());
    if (is_stopped) co_return co_await scope.async_finish(stop.get_token());
    co_return co_await scope.async_finish(short_limit);
  };
  scoped receiving = receive();
  stop.request_stop();
  const scope_error failed = failure_of(run(receiving, ends.right));
  REQUIRE(failed.work());
  CHECK(*failed.work() == (is_stopped ? error_kind::cancelled : error_kind::timed_out));
  CHECK(ends.right.state() == channel_state::broken);
}

TEST_CASE("a scope of an empty channel refuses requests and returns an error when it is awaited") {
  channel none;
  const auto finish = [&]() -> routine {
    async_scope scope(none);
    const auto sent = co_await scope.async_send({.elements = inline_payload(1U)});
    CHECK(error(failure_of(sent)) == error_kind::not_connected);
    VERBSPP_CO_TRYV(co_await scope.async_finish());
    co_return success();
  };
  routine finishing = finish();
  REQUIRE(finishing.is_done());
  CHECK(finishing.get().has_error());
}

TEST_CASE("a coroutine awaits handles of requests that keep or own their memory") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  auto own = must(registered_buffer<>::allocate(bed.domain, 8));
  buffer<> to(bed.domain, 8);
  inbox messages = must(inbox::open(ends.right, pool));
  const auto send = [&]() -> eager<transport_result<void>> {
    VERBSPP_CO_TRY(letter, pool.take());
    VERBSPP_CO_TRY(first, ends.left.post_send(std::move(letter)));
    VERBSPP_CO_TRY(second, ends.left.post_write(std::move(own), {.remote = to.remote()}));
    auto [written, memory] = co_await second.async_wait(patience);
    VERBSPP_CO_TRYV(written);
    own = std::move(memory);
    VERBSPP_CO_TRYV(co_await first.async_wait());
    // The result was already taken, so a second wait is refused.
    const auto again = co_await first.async_wait();
    CHECK(error(failure_of(again)) == error_kind::invalid_input);
    co_return success();
  };
  auto sending = send();
  must(run(sending, ends.left));
  CHECK(own.size() == 8);
  CHECK(must(messages.wait(patience)).size() == 64);
}

TEST_CASE("a limit that expires while a coroutine awaits a handle is the cause of the failure") {
  const testbed bed;
  const auto failure = [&](const wait_limit& limit) {
    channel_pair ends = connect_short(bed);
    auto into = must(registered_buffer<>::allocate(bed.domain, 8));
    const shared_bytes place = share_bytes(bed, 8);
    const auto receive = [&](bool owned) -> eager<transport_result<completed_work>> {
      if (!owned) {
        VERBSPP_CO_TRY(work, ends.left.post_receive(place));
        co_return co_await work.async_wait(limit);
      }
      VERBSPP_CO_TRY(work, ends.left.post_receive(std::move(into)));
      auto [done, memory] = co_await work.async_wait(limit);
      into = std::move(memory);
      co_return done;
    };
    const bool owned = limit.stop_requested();
    auto receiving = receive(owned);
    const error failed = failure_of(run(receiving, ends.left));
    CHECK(into.size() == 8);
    return failed;
  };
  CHECK(failure(short_limit) == error_kind::timed_out);
  std::stop_source stop;
  stop.request_stop();
  CHECK(failure(stop.get_token()) == error_kind::cancelled);
}

TEST_CASE("a coroutine awaits room in the send queue") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const auto capacity = ends.left.capacities().max_send_work_requests;
  const auto wait = [&](std::uint32_t wanted, wait_limit limit) -> eager<result<void>> {
    co_return co_await ends.left.async_room(wanted, limit);
  };
  auto at_once = wait(capacity, patience);
  CHECK(at_once.is_done());
  auto too_many = wait(capacity + 1, patience);
  CHECK(failure_of(too_many.get()) == error_kind::invalid_input);
  std::vector<pending<>> filling;
  while (ends.left.outstanding() < capacity)
    filling.push_back(must(ends.left.post_send({.elements = inline_payload(1U)})));
  auto late = wait(1, short_limit);
  CHECK(failure_of(run(late, ends.left)) == error_kind::timed_out);
  CHECK(ends.left.is_connected());
  auto waiting = wait(2, patience);
  ends.left.poll();
  CHECK_FALSE(waiting.is_done());
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  std::optional<inbox> messages = must(inbox::open(ends.right, pool));
  must(run(waiting, ends.left));
  for (auto& each : filling) must(each.wait(patience));
  auto broken = wait(capacity, patience);
  ends.left.stop();
  CHECK(ends.left.send({.elements = inline_payload(1U)}).has_error());
  auto refused = wait(1, patience);
  CHECK(refused.get().has_error());
}
