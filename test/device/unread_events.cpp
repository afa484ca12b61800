// SPDX-License-Identifier: Apache-2.0
/// \file
/// Events that are left unread. They delay no call, and can be read later as long as their objects
/// exist. The library's own waits do not let them accumulate.

#include "device.hpp"

#include <array>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A queue pair that writes to itself, and whose requests complete in a waitable queue.
struct writer {
  writer(const testbed& bed, const completion_channel& channel)
      : queue(must(waitable_completion_queue::create(channel, 64))),
        memory(bed.domain, 8),
        pair(connect_to_itself(must(bed.builder(queue).access(all_rights).build()))) {}

  void write(std::uint64_t id) { must(pair.post_write({.remote = memory.remote()}, {.id = id})); }
  /// Makes the queue raise an event, takes the completion, and leaves the event unread in the
  /// completion channel.
  void leave_event(std::uint64_t id) {
    must(queue.request_notification());
    write(id);
    take_success(queue, id);
  }

  waitable_completion_queue queue;
  buffer<> memory;
  connected pair;
};

/// Returns the channel's events. Stops when no more arrive.
std::vector<waitable_completion_queue> events_of(const completion_channel& channel) {
  std::vector<waitable_completion_queue> events;
  while (auto event = must(channel.wait(clock::now() + moment)))
    events.push_back(std::move(*event));
  return events;
}

/// A receiver whose messages arrive just after its program has requested a notification.
struct late_arrivals {
  late_arrivals(const testbed& bed, const completion_channel& channel)
      : queue(must(waitable_completion_queue::create(channel, 64))),
        pair(
            connect(must(bed.left().build()), must(bed.builder(queue).access(all_rights).build()))),
        sent(bed.left_queue),
        original(std::exchange(operation(), request)) {
    current = this;
  }
  ~late_arrivals() { operation() = original; }
  late_arrivals(const late_arrivals&) = delete;
  late_arrivals& operator=(const late_arrivals&) = delete;

  using requesting = int (*)(ibv_cq*, int);
  [[nodiscard]] requesting& operation() const {
    return queue.native_handle()->context->ops.req_notify_cq;
  }
  static int request(ibv_cq* asked, int solicited_only) {
    const int returned = current->original(asked, solicited_only);
    must(current->pair.right.post_receive({}, {.id = 1}));
    must(current->pair.left.post_send({}, {.id = 2}));
    take_success(current->sent, 2);
    // The send may complete before the receive does, so wait for a moment.
    // steady: after this pause, the completion has likely arrived; if it arrives later, its event
    // ends the wait
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return returned;
  }

  static inline late_arrivals* current = nullptr;
  waitable_completion_queue queue;
  connected_pair pair;
  completion_queue sent;
  requesting original;
};

}  // namespace

TEST_CASE("unread completion events delay nothing and can be read later") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  constexpr std::uint64_t rounds = 200;
  writer kept(bed, channel);
  {
    writer gone(bed, channel);
    for (std::uint64_t id = 0; id < rounds; ++id) {
      gone.leave_event(id);
      kept.leave_event(id);
    }
  }
  const auto events = events_of(channel);
  CHECK(!events.empty());
  CHECK(events.size() <= rounds);
  for (const auto& each : events) CHECK(each == kept.queue);
  kept.write(7);
  take_success(kept.queue, 7);
}

TEST_CASE("events that a wait reads for other queues are kept once per queue") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto busy = must(waitable_completion_queue::create(channel, 4));
  writer first(bed, channel);
  writer second(bed, channel);
  std::array<work_completion, 4> slots;
  for (std::uint64_t id = 0; id < 30; ++id) {
    first.leave_event(id);
    second.leave_event(id);
    CHECK(must(busy.wait(slots, clock::now() + std::chrono::milliseconds(1))).empty());
  }
  CHECK(must(busy.wait(slots, clock::now() + moment)).empty());
  const auto events = events_of(channel);
  REQUIRE(events.size() == 2);
  CHECK(is_one_of(events[0], {first.queue, second.queue}));
  CHECK(is_one_of(events[1], {first.queue, second.queue}));
  CHECK(events[0] != events[1]);
}

TEST_CASE("waits let no events accumulate when completions arrive before they sleep") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const late_arrivals arrivals(bed, channel);
  std::array<work_completion, 4> slots;
  constexpr int rounds = 50;
  for (int round = 0; round < rounds; ++round)
    REQUIRE(must(arrivals.queue.wait(slots, clock::now() + patience)).size() == 1);
  // An event may still arrive after the wait of the last round has ended.
  CHECK(events_of(channel).size() <= 2);
}

TEST_CASE("unread asynchronous events delay nothing and can be read later in order") {
  const testbed bed;
  for (int round = 0; round < 50; ++round) {
    const connected_pair gone = connect(bed);
    start_draining(gone.left);
  }
  std::vector<connected_pair> pairs;
  for (int i = 0; i < 50; ++i) {
    pairs.push_back(connect(bed));
    start_draining(pairs.back().left);
  }
  // The events of destroyed queue pairs have been dropped, so only those of the queue pairs in
  // `pairs` are left.
  for (const connected_pair& each : pairs) {
    const auto event = must(bed.context.wait_async_event(clock::now() + patience));
    REQUIRE(event);
    CHECK(event->type() == async_event_type::send_queue_drained);
    CHECK(event->concerns(each.left));
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
  // A context can be closed even if it has unread events.
  start_draining(pairs.front().right);
}
