// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE_METHOD(two_channels, "a handle returns its result once and refuses further calls") {
  buffer<> mine(bed.domain, 8);
  buffer<> theirs(bed.domain, 8);
  auto work = must(left.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  auto moved = std::move(work);
  CHECK_FALSE(work.has_request());
  CHECK(error(failure_of(work.wait())) == error_kind::invalid_input);
  std::optional<transport_result<completed_work>> result;
  wait_until([&] { return (result = moved.poll()).has_value(); }, "the write");
  CHECK(result->has_value());
  CHECK(error(failure_of(moved.wait())) == error_kind::invalid_input);
  CHECK(error(failure_of(*moved.poll())) == error_kind::invalid_input);
}

TEST_CASE_METHOD(two_channels, "the results of handles are kept regardless of later requests") {
  buffer<> mine(bed.domain, pattern(64, 5));
  buffer<> theirs(bed.domain, 64);
  std::vector<pending<>> kept;
  for (int i = 0; i < 8; ++i)
    kept.push_back(must(left.post_read(
        {.elements = mine.scatter(0, static_cast<std::size_t>(i)), .remote = theirs.remote()})));
  for (int i = 0; i < 200; ++i)
    must(left.write({.elements = mine.gather(0, 8), .remote = must(theirs.remote().slice(0, 8))}));
  for (std::uint32_t i = 0; i < 8; ++i) CHECK(must(kept[i].wait()).byte_count() == i);
}

TEST_CASE_METHOD(two_channels, "using a handle after its scope is an error") {
  buffer<> mine(bed.domain, 64);
  buffer<> theirs(bed.domain, 64);
  std::optional<scoped_pending> escaped;
  must(left.scope([&](channel_scope& s) {
    escaped = must(s.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  }));
  CHECK(error(failure_of(escaped->wait())) == error_kind::invalid_input);
  must(left.write({.elements = mine.gather(), .remote = theirs.remote()}));
}

TEST_CASE(
    "using a handle after its channel is destroyed is an error unless its request had finished") {
  const testbed bed;
  std::optional<channel_pair> pair = connect_channels(bed);
  buffer<> mine(bed.domain, 64);
  buffer<> theirs(bed.domain, 64);
  auto finished =
      must(pair->left.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  must(pair->left.write({.elements = mine.gather(), .remote = theirs.remote()}));
  auto unfinished = must(pair->left.post_receive({.elements = mine.scatter()}));
  auto dropped = must(pair->left.post_receive({.elements = mine.scatter()}));
  pair.reset();
  must(finished.wait());
  CHECK(error(failure_of(unfinished.wait())) == error_kind::not_connected);
}

TEST_CASE_METHOD(two_channels, "dropping a handle waits for its request") {
  buffer<> theirs(bed.domain, 1 << 20);
  {
    buffer<> mine(bed.domain, pattern(1 << 20, 9));
    auto work = must(left.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  }
  CHECK(left.outstanding() == 0);
  CHECK(theirs.bytes() == pattern(1 << 20, 9));
}

TEST_CASE("dropping the handle of a request without memory does not wait") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().max_inline_data(8));
  const std::uint64_t bytes = 1;
  static_cast<void>(must(ends.left.post_receive({})));
  static_cast<void>(must(ends.left.post_send({.elements = inline_payload(bytes)})));
  CHECK(ends.left.outstanding() != 0);  // the peer has posted no receive
  CHECK(ends.left.is_connected());
}

TEST_CASE("a channel reports that dropping a handle closed its connection") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().default_limit(short_limit));
  buffer<> mine(bed.domain, 64);
  static_cast<void>(must(ends.left.post_receive({.elements = mine.scatter()})));
  REQUIRE(ends.left.failure());
  CHECK(ends.left.failure()->root() == error_kind::timed_out);
  CHECK(ends.left.failure()->message().find("drop the handle") != std::string::npos);
  CHECK(ends.left.outstanding() == 0);
}

TEST_CASE_METHOD(two_channels, "a request with its memory can be detached from its handle") {
  buffer<> theirs(bed.domain, 64);
  auto pool = must(message_pool::create(bed.domain, 1, 64));

  SECTION("a request in flight") {
    auto receive = must(ends.left.post_receive(must(pool.take())));
    must(std::move(receive).detach());
    CHECK(!receive.has_request());
    CHECK(failure_of(std::move(receive).detach()) == error_kind::invalid_input);
    CHECK(ends.left.outstanding() == 1);
    CHECK(pool.available() == 0);
    must(ends.right.send({.elements = theirs.gather()}));
    wait_until([&] { return ends.left.poll(), pool.available() == 1; }, "the message's place");
  }
  SECTION("a request that is flushed") {
    must(must(ends.left.post_receive(must(pool.take()))).detach());
    must(ends.left.close());
    CHECK(pool.available() == 1);
  }
  SECTION("a request that has finished") {
    auto read = must(ends.left.post_read(must(pool.take()), {.remote = theirs.remote()}));
    finish_all(ends.left, "the read");
    must(std::move(read).detach());
    CHECK(pool.available() == 1);
  }
  SECTION("a request of a scope") {
    must(ends.left.scope([&](channel_scope& scope) -> result<void> {
      VERBSPP_TRY(read, scope.post_read(must(pool.take()), {.remote = theirs.remote()}));
      return std::move(read).detach();
    }));
    CHECK(pool.available() == 1);
  }
}

TEST_CASE_METHOD(two_channels, "handles can be stored before they have a request") {
  std::array<pending<>, 2> stored;
  pending<message> owning;
  CHECK(!stored[0].has_request());
  CHECK(!owning.has_request());
  CHECK(error(failure_of(stored[0].wait())) == error_kind::invalid_input);
  CHECK(error(failure_of(owning.wait().result)) == error_kind::invalid_input);
  for (pending<>& each : stored) each = must(ends.right.post_receive({}));
  for (pending<>& each : stored) {
    must(ends.left.send({.immediate = immediate_data(1)}));
    must(each.wait(patience));
  }
}

TEST_CASE("receives posted before the handshake own their memory as well") {
  const testbed bed;
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().build());
  auto owned = must(registered_buffer<>::allocate(bed.domain, 64));
  auto kept = must(must(registered_buffer<>::allocate(bed.domain, 64)).share());
  auto first = must(right.post_receive(std::move(owned)));
  auto second = must(right.post_receive(kept));

  SECTION("the memory is returned with the message after the handshake") {
    const endpoint left_end = left.endpoint();
    channel here = must(std::move(left).handshake(right.endpoint()));
    const channel there = must(std::move(right).handshake(left_end));
    auto message = must(registered_buffer<>::allocate(bed.domain, 64));
    message[9] = std::byte{9};
    must(here.send({.elements = must(message.gather())}));
    must(here.send({.elements = must(message.gather())}));
    auto received = first.wait(patience);
    must(received.result);
    CHECK(received.memory[9] == std::byte{9});
    must(second.wait(patience));
    CHECK(kept[9] == std::byte{9});
  }
  SECTION("the memory is returned if the channel was never connected") {
    {
      const prepared_channel dropped(std::move(right));
    }
    auto received = first.wait();
    CHECK(error(failure_of(received.result)) == error_kind::not_connected);
    CHECK(received.memory.size() == 64);
    CHECK(failure_of(right.post_receive(std::move(received.memory))) == error_kind::not_connected);
    CHECK(received.memory.size() == 64);
  }
}

TEST_CASE_METHOD(two_channels,
                 "memory owned by a request is returned with the result even on failure") {
  auto sent = must(registered_buffer<>::allocate(bed.domain, 64));
  auto filled = must(registered_buffer<>::allocate(bed.domain, 64));
  const std::byte* const where = filled.data();
  sent[5] = std::byte{42};

  auto receive = must(ends.right.post_receive(std::move(filled)));
  CHECK(filled.size() == 0);
  auto send = must(left.post_send(std::move(sent), {.immediate = immediate_data(3)}));
  auto sending = send.wait();
  must(sending.result);
  CHECK(sending.memory.size() == 64);
  auto received = receive.wait(patience);
  CHECK(must(received.result).immediate() == immediate_data(3));
  CHECK(received.memory.data() == where);
  CHECK(received.memory[5] == std::byte{42});
  CHECK(error(failure_of(receive.wait().result)) == error_kind::invalid_input);

  SECTION("a request can own a part of a buffer") {
    auto part = must(std::move(received.memory).part(4, 8));
    auto again = must(left.post_receive(std::move(part)));
    must(ends.right.send({.elements = must(sending.memory.gather(4, 8))}));
    auto done = again.wait(patience);
    CHECK(must(done.result).byte_count() == 8);
    const auto whole = std::move(done.memory).buffer();
    CHECK(whole[5] == std::byte{42});
  }
  SECTION("the caller keeps the memory if the request cannot be posted") {
    must(left.close());
    CHECK(failure_of(left.post_send(std::move(sending.memory))) == error_kind::not_connected);
    CHECK(sending.memory.size() == 64);
  }
  SECTION("a request that fails returns the memory") {
    auto never = must(left.post_receive(std::move(received.memory)));
    auto ended = never.wait(short_limit);
    CHECK(error(failure_of(ended.result)) == error_kind::timed_out);
    CHECK(ended.memory.data() == where);
  }
  SECTION("a scope can wait for the handle") {
    const scope_error failed = failure_of(left.scope(
        [&](channel_scope& s) { CHECK(s.post_receive(std::move(received.memory)).has_value()); },
        short_limit));
    REQUIRE(failed.work());
    CHECK(*failed.work() == error_kind::timed_out);
    CHECK(failed.flushed() == 1);
  }
}

TEST_CASE_METHOD(two_channels,
                 "memory shared with a request stays until the device no longer accesses it") {
  auto shared = must(must(registered_buffer<>::allocate(bed.domain, 64)).share());
  buffer<> message(bed.domain, pattern(64, 3));

  SECTION("all other handles are destroyed") {
    std::optional<kept_pending> receive;
    {
      const auto mine = std::move(shared);
      receive = must(left.post_receive(mine));
    }
    must(ends.right.send({.elements = message.gather()}));
    CHECK(must(receive->wait(patience)).byte_count() == 64);
  }
  SECTION("no thread waits for the request") {
    for (int i = 0; i < 40; ++i) {
      CHECK(left.post_receive(shared).has_value());
      must(ends.right.send({.elements = message.gather()}));
      left.poll();
    }
    finish_all(left, "the receives");
  }
  SECTION("the function of a scope has the only other handle") {
    buffer<> theirs(bed.domain, 64);
    must(left.scope([&](channel_scope& s) -> result<void> {
      const auto mine = std::move(shared);
      VERBSPP_TRYV(s.post_write(mine, {.remote = theirs.remote()}));
      VERBSPP_TRY(half, mine.part(0, 32));
      VERBSPP_TRYV(s.post_read(half, {.remote = theirs.remote()}));
      return success();
    }));
  }
  SECTION("the channel is destroyed") {
    CHECK(left.post_receive(shared).has_value());
    left = channel();
  }
}
