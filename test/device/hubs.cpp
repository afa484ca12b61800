// SPDX-License-Identifier: Apache-2.0
// Hubs without a pool, and the numbers of channels and completions for which a hub has room.

#include "hubs.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE("a channel cannot be built with a moved-from hub") {
  const testbed bed;
  auto hub = must(channel_hub::create(bed.domain, {.channels = 4, .completions = 128}));
  const channel_hub moved = std::move(hub);
  const auto told =
      failure_of(bed.domain.build_channel().hub(hub).max_send_work_requests(4).build());
  CHECK(told == error_kind::invalid_input);
  CHECK_THAT(told.message(), Catch::Contains("this hub was moved from"));
  // A later call to `hub` replaces the moved-from hub.
  CHECK(bed.domain.build_channel().hub(hub).hub(moved).build().has_value());
}

TEST_CASE("requests of a hub's channels complete in its queue and the channels' waits find them") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 4, .completions = 128}));
  channel_pair one = connect_to_hub(bed, hub);
  channel_pair two = connect_to_hub(bed, hub);
  CHECK(hub.size() == 2);
  CHECK(hub.receives_posted() == 0);
  CHECK(one.left.id().index != two.left.id().index);
  CHECK(one.right.id() == channel_id());
  CHECK(one.left.native_completion_queue() == hub.native_handle());

  buffer<> mine(bed.domain, pattern(64, 1));
  buffer<> theirs(bed.domain, 64);
  // No matter which channel polls, each completion is reported to the channel that posted the
  // request.
  auto write_one =
      must(one.left.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  auto write_two =
      must(two.left.post_write({.elements = mine.gather(), .remote = theirs.remote()}));
  must(write_two.wait(patience));
  must(write_one.wait(patience));
  auto receive = must(one.left.post_receive({.elements = theirs.scatter(0, 8)}));
  must(one.right.send({.elements = mine.gather(8, 8)}));
  CHECK(must(receive.wait(patience)).byte_count() == 8);
  CHECK(theirs.front(8) ==
        std::vector<std::byte>(mine.bytes().begin() + 8, mine.bytes().begin() + 16));
  must(two.left.scope([&](channel_scope& s) -> result<void> {
    for (int i = 0; i < 40; ++i)
      VERBSPP_TRYV(s.post_read({.elements = theirs.scatter(), .remote = theirs.remote()}));
    return success();
  }));
  CHECK(two.left.outstanding() == 0);

  SECTION("one channel breaks while the others continue") {
    move_to_error(one.left.native_handle());
    CHECK(one.left.send({.elements = mine.gather()}).has_error());
    CHECK(one.left.state() == channel_state::broken);
    must(two.left.write({.elements = mine.gather(), .remote = theirs.remote()}));
    static_cast<void>(must(one.left.renew()));
    static_cast<void>(must(one.right.renew()));
    must(one.left.handshake(one.right.endpoint()));
    must(one.right.handshake(one.left.endpoint()));
    must(one.left.write({.elements = mine.gather(), .remote = theirs.remote()}));
  }
  SECTION("an inbox receives the messages of a channel") {
    const auto pool = must(message_pool::create(bed.domain, 8, 64));
    auto arrivals = must(inbox::open(one.left, pool));
    must(one.right.send({.elements = mine.gather()}));
    CHECK(must(arrivals.wait(patience)).size() == 64);
  }
}

TEST_CASE("a hub reports which channel has completions") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  channel_pair ends = connect_to_hub(bed, hub);
  const auto pool = must(message_pool::create(bed.domain, 1, 64));
  buffer<> to(bed.domain, 64);
  auto receive = must(ends.right.post_receive({.elements = to.scatter()}));
  CHECK(ends.left.post_send(must(pool.take())).has_value());
  std::array<arrival, 4> slots;
  const auto arrived = must(hub.wait(slots, patience));
  REQUIRE(arrived.size() == 1);
  CHECK(arrived[0].source == ends.left.id());
  CHECK_FALSE(arrived[0].message);
  CHECK(pool.available() == 0);
  ends.left.poll();
  CHECK(pool.available() == 1);
  CHECK(must(hub.poll(slots)).empty());
  CHECK(failure_of(hub.wait(slots, short_limit)) == error_kind::timed_out);
  CHECK(failure_of(hub.poll({})) == error_kind::invalid_input);
  must(receive.wait(patience));
}

TEST_CASE("a hub keeps the completions of receives until their channel takes them") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 1, .completions = 64}));
  channel_pair ends = connect_to_hub(bed, hub);
  const buffer<> from(bed.domain, pattern(64, 1));
  buffer<> to(bed.domain, 64);
  for (int round = 0; round < 5; ++round) {
    std::vector<pending<>> receives;
    for (std::size_t i = 0; i < 4; ++i)
      receives.push_back(must(ends.left.post_receive({.elements = to.scatter(16 * i, 16)})));
    for (std::uint32_t size = 1; size <= 4; ++size)
      must(ends.right.send({.elements = from.gather(0, size)}));
    std::array<arrival, 4> slots;
    CHECK_FALSE(must(hub.wait(slots, patience)).empty());
    CHECK(ends.left.outstanding() == 4);
    for (std::uint32_t size = 1; size <= 4; ++size)
      CHECK(must(receives[size - 1].wait(patience)).byte_count() == size);
  }
}

TEST_CASE("a stop request ends a hub's wait in each wait mode") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    const auto hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
    std::stop_source source;
    std::thread other = later([&] { source.request_stop(); });
    std::array<arrival, 1> slot;
    const error stopped = failure_of(hub.wait(slot, wait_limit(patience, source.get_token())));
    other.join();
    CHECK(stopped == error_kind::cancelled);
  }
}

TEST_CASE("a hub refuses invalid options and objects for which it has no room") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  CHECK(failure_of(channel_hub::create(bed.domain, {.channels = 0})) == error_kind::invalid_input);
  CHECK(failure_of(channel_hub::create(bed.domain, {.channels = 1U << 16})) ==
        error_kind::invalid_input);
  CHECK(failure_of(channel_hub::create(bed.domain, {.completions = 0})) ==
        error_kind::invalid_input);
  const auto other = must(protection_domain::allocate(bed.context));
  CHECK(failure_of(channel_hub::create(other, pool)) == error_kind::invalid_input);

  SECTION("too many channels") {
    const auto hub = must(channel_hub::create(bed.domain, {.channels = 1}));
    std::optional<prepared_channel> first = must(small_channel(bed).hub(hub).build());
    const error full = failure_of(small_channel(bed).hub(hub).build());
    CHECK(full == error_kind::resource_exhausted);
    CHECK(full.message().find("hub_options::channels") != std::string::npos);
    first.reset();
    CHECK(small_channel(bed).hub(hub).build().has_value());
    CHECK(failure_of(other.build_channel().hub(hub).build()) == error_kind::invalid_input);
    CHECK(failure_of(small_channel(bed).waiting(wait_mode::sleep()).hub(hub).build()) ==
          error_kind::invalid_input);
  }
  SECTION("too many completions") {
    const auto hub = must(channel_hub::create(bed.domain, {.channels = 1000, .completions = 64}));
    const std::uint64_t room = hub.room();
    std::vector<prepared_channel> all;
    std::optional<error> full;
    while (!full) {
      auto made = small_channel(bed).hub(hub).build();
      if (made.has_value())
        all.push_back(std::move(made).assume_value());
      else
        full = made.error();
    }
    CHECK(all.size() >= 1);
    CHECK(hub.room() < 8);
    CHECK(*full == error_kind::invalid_input);
    CHECK(full->message().find("hub_options::completions") != std::string::npos);
    CHECK(hub.size() == all.size());
    all.clear();
    CHECK(hub.room() == room);
  }
  SECTION("too many shared receives") {
    CHECK(channel_hub::create(bed.domain, pool, {.completions = 8, .receives = 1U << 16})
              .has_error());
  }
  SECTION("a moved-from hub") {
    auto hub = must(channel_hub::create(bed.domain));
    const auto moved = std::move(hub);
    std::array<arrival, 1> slots;
    CHECK(failure_of(hub.poll(slots)) == error_kind::invalid_input);
    CHECK(hub.size() == 0);
    CHECK(hub.native_handle() == nullptr);
    CHECK_FALSE(hub == moved);
    hub.wake({});
    moved.wake({.index = moved.capacity(), .generation = 1});
    CHECK(must(moved.poll(slots)).empty());
  }
}

TEST_CASE("a hub has room for all its channels even if the device grants longer queues") {
  const testbed bed;
  constexpr std::uint32_t channels = 7;
  constexpr std::uint32_t requests = 17;
  const auto hub = must(channel_hub::create(
      bed.domain, {.channels = channels, .completions = channels * 2 * requests}));
  const auto builder = bed.domain.build_channel()
                           .max_send_work_requests(requests)
                           .max_receive_work_requests(requests)
                           .hub(hub);
  std::vector<prepared_channel> made;
  while (made.size() < channels) made.push_back(must(builder.build()));
  CHECK(hub.size() == channels);
}
