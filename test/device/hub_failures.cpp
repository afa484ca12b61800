// SPDX-License-Identifier: Apache-2.0
// Failures of the device, a port, a watched socket and the queues of a hub, and late completions.

#include "../socket_pair.hpp"
#include "failing_device.hpp"
#include "failing_verb.hpp"
#include "hubs.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE("polling a hub's channel takes its completions and detects that a socket hung up") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  socket_pair sockets;
  channel_pair ends = connect_to_hub(bed, hub);
  const auto pool = must(message_pool::create(bed.domain, 1, 64));
  buffer<> to(bed.domain, 64);
  auto receive = must(ends.right.post_receive({.elements = to.scatter()}));
  ends.left.watch(sockets[0]);
  CHECK(ends.left.post_send(must(pool.take())).has_value());
  std::array<arrival, 4> slots;
  CHECK(must(hub.wait(slots, patience)).size() == 1);
  sockets.close(1);
  CHECK(must(hub.wait(slots, patience)).size() == 1);
  ends.left.poll();
  CHECK(pool.available() == 1);
  CHECK(ends.left.state() == channel_state::broken);
  must(receive.wait(patience));
}

TEST_CASE("a poll of a hub returns the event of a watched descriptor that occurred before it") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  socket_pair sockets;
  channel_pair ends = connect_to_hub(bed, hub);
  ends.left.watch(sockets[0]);
  std::array<arrival, 4> slots;
  CHECK(must(hub.poll(slots)).empty());
  sockets.close(1);
  REQUIRE(must(hub.poll(slots)).size() == 1);
  CHECK(slots[0].source == ends.left.id());
  SECTION("the event breaks the channel") {
    ends.left.poll();
    CHECK(ends.left.state() == channel_state::broken);
  }
  SECTION("the event has no effect if the channel now watches another descriptor") {
    const socket_pair others;
    ends.left.watch(others[0]);
    ends.left.poll();
    CHECK(ends.left.is_connected());
    ends.left.watch(-1);
  }
}

TEST_CASE("a hub keeps the failures of all requests until their channel takes them") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  const auto hub = hub_with(bed, pool, {.channels = 1, .receives = 4});
  channel_pair ends = connect_to_hub(bed, *hub);
  buffer<> much(bed.domain, 200);
  // The peer has posted no receives, so the sends stay in flight until the message that is too long
  // has broken the channel.
  std::vector<pending<>> sends;
  for (int i = 0; i < 4; ++i)
    sends.push_back(must(ends.left.post_send({.elements = much.gather(0, 8)})));
  CHECK(ends.right.send({.elements = much.gather()}).has_error());
  std::array<arrival, 4> slots;
  wait_until([&] { return hub->wait(slots, short_limit).has_error(); }, "the hub to be idle");
  CHECK(ends.left.outstanding() == 4);
  wait_until(
      [&] {
        static_cast<void>(hub->poll(slots));
        ends.left.poll();
        return ends.left.state() == channel_state::broken;
      },
      "the failure of the receive");
  for (pending<>& each : sends) CHECK(each.wait(patience).has_error());
  CHECK(ends.left.outstanding() == 0);
}

TEST_CASE("a failure during a wait for a hub ends the wait and is reported") {
  for (const wait_mode mode : all_modes) {
    for (const bool is_port : {true, false}) {
      const testbed bed;
      const auto hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
      const channel_pair ends = connect_to_hub(bed, hub);
      std::array<arrival, 1> slot;
      const failing_device failing(is_port ? "after:50ms=port-down" : "after:50ms=device-fatal");
      const auto start = clock::now();
      auto ended = hub.wait(slot, patience);
      // The failure also breaks the channel, and the hub may report that first.
      if (ended.has_value()) ended = hub.wait(slot, patience);
      CHECK(clock::now() - start < soon);
      const error failed = failure_of(ended);
      CHECK(failed == error_kind::driver);
      CHECK_THAT(failed.message(), Catch::Contains(is_port ? "port" : "device"));
      if (is_port) CHECK(failure_of(hub.wait(slot, patience)) == error_kind::driver);
    }
  }
}

TEST_CASE("poll of a hub returns the failure of a port once the program has read its event") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  const channel_pair ends = connect_to_hub(bed, hub);
  std::array<arrival, 1> slot;
  const failing_device failing("port-down");
  CHECK(must(hub.poll(slot)).empty());
  CHECK(must(bed.context.wait_async_event(patience)));
  CHECK(failure_of(hub.poll(slot)) == error_kind::driver);
  CHECK(must(hub.poll(slot)).empty());
}

TEST_CASE("a failure of a hub's queue ends the wait for it and is reported") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  const channel_pair ends = connect_to_hub(bed, hub);
  ibv_async_event failed{};
  failed.event_type = IBV_EVENT_CQ_ERR;
  failed.element.cq = hub.native_handle();
  inject(failed);
  std::array<arrival, 1> slot;
  const error told = failure_of(hub.wait(slot, patience));
  // The device did not report the injected event, so it must not be counted as acknowledged.
  --hub.native_handle()->async_events_completed;
  CHECK(told == error_kind::driver);
  CHECK_THAT(told.message(), Catch::Contains("completion queue"));
}

TEST_CASE("a failed poll of a hub's queue breaks its channels and ends all later polls and waits") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  const bool has_pool = GENERATE(false, true);
  auto hub = has_pool ? hub_with(bed, pool, {.receives = 8})
                      : std::optional(must(channel_hub::create(bed.domain)));
  std::array ends{connect_to_hub(bed, *hub), connect_to_hub(bed, *hub)};
  const std::uint32_t posted = hub->receives_posted();
  std::array<arrival, 4> slots;
  {
    const failing_operation fails(hub->native_handle()->context->ops.poll_cq, EIO,
                                  convention::negative_errno);
    // The hub reports each channel, so that the program handles its failure.
    REQUIRE(must(hub->poll(slots)).size() == 2);
    CHECK(fails.calls() == 1);
    CHECK(slots[0].source == ends[0].left.id());
    CHECK(slots[1].source == ends[1].left.id());
  }
  // The queue is not polled again, although it could be.
  if (has_pool) must(ends[0].right.send({}));
  for (int i = 0; i < 2; ++i) {
    for (const error& told : {failure_of(hub->poll(slots)), failure_of(hub->wait(slots, patience)),
                              failure_of(small_channel(bed).hub(*hub).build())}) {
      CHECK(told == error_kind::driver);
      CHECK(told.native_errno() == EIO);
      CHECK_THAT(told.message(), Catch::Contains("ibv_poll_cq"));
    }
    for (channel_pair& each : ends) {
      each.left.poll();
      CHECK(each.left.state() == channel_state::broken);
      REQUIRE(each.left.failure());
      CHECK_THAT(each.left.failure()->root().message(), Catch::Contains("ibv_poll_cq"));
    }
  }
  CHECK(hub->receives_posted() == posted);
  CHECK(hub->deadline() == (wait_limit::time_point::max)());
  ends = {};
  CHECK(hub->size() == 0);
  hub.reset();
  CHECK(pool.available() == pool.size());
}

TEST_CASE("a hub ignores late completions of a queue pair that was destroyed") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain));
  channel_pair ends = connect_to_hub(bed, hub);
  static ibv_wc late;
  late = {};
  late.qp_num = ends.left.native_handle()->qp_num;
  ends.left = channel();
  static int polls;
  polls = 0;
  auto& poll = hub.native_handle()->context->ops.poll_cq;
  const auto before = std::exchange(poll, [](ibv_cq* /*queue*/, int /*room*/, ibv_wc* completions) {
    completions[0] = late;
    return ++polls == 1 ? 1 : 0;
  });
  std::array<arrival, 4> slots;
  const auto arrived = hub.poll(slots);
  poll = before;
  CHECK(must(arrived).empty());
  CHECK(polls >= 1);
}

TEST_CASE("a hub that cannot post receives reports the cause while no receive is posted") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  const hub_options options{.channels = 1, .receives = 4, .refill = 2};
  auto hub = hub_with(bed, pool, options);
  channel_pair ends = connect_to_hub(bed, *hub);
  std::array<arrival, 1> slot;
  {
    const failing_operation fails(bed.domain.context().native_handle()->ops.post_srq_recv, EIO,
                                  convention::returns_errno);
    const error refused = failure_of(channel_hub::create(bed.domain, pool, options));
    CHECK_THAT(refused.message(), Catch::Contains("ibv_post_srq_recv"));
    CHECK(pool.available() == 4);
    for (int i = 0; i < 4; ++i) {
      CHECK(must(hub->poll(slot)).empty());
      must(ends.right.send({}));
      CHECK(next_message(*hub, [](channel_id) {}).source == ends.left.id());
    }
    CHECK(hub->receives_posted() == 0);
    for (const error& told : {failure_of(hub->poll(slot)), failure_of(hub->wait(slot, patience))}) {
      CHECK(told.native_errno() == EIO);
      CHECK_THAT(told.message(), Catch::Contains("ibv_post_srq_recv"));
    }
    CHECK(pool.available() == 8);
  }
  CHECK(must(hub->poll(slot)).empty());
  CHECK(hub->receives_posted() == 4);
  std::vector<message> kept;
  for (auto taken = pool.take(); taken.has_value(); taken = pool.take())
    kept.push_back(std::move(taken).assume_value());
  for (int i = 0; i < 4; ++i) {
    must(ends.right.send({}));
    kept.push_back(next_message(*hub, [](channel_id) {}).message);
  }
  CHECK(hub->receives_posted() == 0);
  // The pool is empty now, which is not a failure.
  CHECK(must(hub->poll(slot)).empty());
}

TEST_CASE("places of a hub whose receive queue was not destroyed do not return to the pool") {
  const testbed bed;
  // The device may still write to these places, so the pool is never destroyed. The pointer keeps
  // tools from reporting that its memory is lost.
  static const message_pool* pool = nullptr;
  pool = new message_pool(must(message_pool::create(bed.domain, 16, 64)));
  auto hub = hub_with(bed, *pool, {.channels = 1, .receives = 8});
  ibv_srq* const native = must(small_channel(bed).hub(*hub).build()).native_handle()->srq;
  static int reports;
  reports = 0;
  const auto before =
      set_destroy_failure_handler([](const error& /*cause*/) noexcept { ++reports; });
  {
    const failing_verb fails("ibv_destroy_srq", EBUSY);
    hub.reset();
    REQUIRE(fails.calls() == 1);
  }
  set_destroy_failure_handler(before);
  CHECK(reports == 1);
  CHECK(pool->available() == 8);
  CHECK(ibv_destroy_srq(native) == 0);
}

TEST_CASE("a port that is down for a moment does not end a hub's wait") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    const auto hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
    const channel_pair ends = connect_to_hub(bed, hub);
    ibv_async_event down{};
    down.event_type = IBV_EVENT_PORT_ERR;
    down.element.port_num = bed.port.number().value();
    ibv_async_event up = down;
    up.event_type = IBV_EVENT_PORT_ACTIVE;
    inject(down, up);
    std::array<arrival, 1> slot;
    CHECK(failure_of(hub.wait(slot, moment)) == error_kind::timed_out);
    // On a busy machine, the wait may end before it has read both events.
    withdraw_injected();
  }
}
