// SPDX-License-Identifier: Apache-2.0
// Failures of the device, a port, a completion queue and a watched socket while a hub is used.

#include "../socket_pair.hpp"
#include "failing_device.hpp"
#include "failing_verb.hpp"
#include "hubs.hpp"

#include <array>

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
