// SPDX-License-Identifier: Apache-2.0
// The scheduler of a hub.

#include "event_loop.hpp"
#include "senders.hpp"

#include <array>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

namespace verbspp::test::senders {

TEST_CASE("the scheduler of a hub completes on the thread that waits for the hub") {
  const testbed bed;
  const wait_mode mode = GENERATE(wait_mode::spin(), wait_mode::sleep());
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
  const hub_scheduler scheduler(hub);
  CHECK(scheduler == hub_scheduler(hub));
  const auto sender = scheduler.schedule();
  CHECK(sender.get_env().query(execution::get_completion_scheduler_t<execution::set_value_t>()) ==
        scheduler);
  std::vector<std::unique_ptr<running<hub_scheduler::sender>>> operations;
  for (int i = 0; i < 100; ++i)
    operations.push_back(std::make_unique<running<hub_scheduler::sender>>(sender));
  std::stop_source stop;
  stop.request_stop();
  running stopped(sender, stop.get_token());
  std::thread starter = later([&] {
    for (auto& each : operations) each->start();
    stopped.start();
  });
  std::array<arrival, 4> slots;
  while (!stopped.seen.is_done()) {
    // The calls that other threads schedule do not end the wait before its limit.
    CHECK(failure_of(hub.wait(slots, 2 * short_limit)) == error_kind::timed_out);
  }
  starter.join();
  CHECK(stopped.seen.stops == 1);
  for (auto& each : operations) {
    CHECK(each->seen.values == 1);
    CHECK(each->seen.completed_on == std::this_thread::get_id());
  }
}

TEST_CASE("scheduled work wakes the event loop of a hub") {
  const testbed bed;
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  running operation(hub_scheduler(hub).schedule());
  std::thread starter = later([&] { operation.start(); });
  serve(hub, [&] {
    must(hub.poll());
    return operation.seen.is_done();
  });
  starter.join();
  CHECK(operation.seen.values == 1);
}

TEST_CASE("work that schedules itself again delays neither arrivals nor limits") {
  const testbed bed;
  const channel_hub hub = must(channel_hub::create(bed.domain));
  channel_pair ends = connect_channels(bed.domain.build_channel().hub(hub).max_inline_data(64));
  struct endless {
    hub_scheduler scheduler;
    bool is_over = false;
    int calls = 0;
    struct again {
      endless* of;
      void set_value() && noexcept {
        ++of->calls;
        if (!of->is_over) of->start();
      }
      void set_stopped() && noexcept {}
    };
    using operation = decltype(scheduler.schedule().connect(again{nullptr}));
    std::optional<operation> places[2]{};
    void start() {
      // Uses the two places alternately, because the operation that has just completed is in the
      // other place.
      auto& place = places[calls % 2];
      place.reset();
      place.emplace(elided{this});
      place->start();
    }
    struct elided {
      endless* of;
      operator operation() const { return of->scheduler.schedule().connect(again{of}); }
    };
  };
  endless work{hub_scheduler(hub)};
  work.start();
  std::array<arrival, 4> slots;
  CHECK(failure_of(hub.wait(slots, short_limit)) == error_kind::timed_out);
  CHECK(work.calls > 1);
  must(must(ends.left.post_write({.remote = must(share_bytes(bed, 8).remote())})).wait());
  work.is_over = true;
  static_cast<void>(hub.poll(slots));
}

}  // namespace verbspp::test::senders
