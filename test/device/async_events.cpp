// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "failing_verb.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>
#include <sstream>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

[[nodiscard]] clock::time_point deadline() { return clock::now() + patience; }

/// A queue pair that is connected to itself. Its completion queue has the smallest possible size,
/// and the constructor makes it overflow.
struct overrun {
  explicit overrun(const testbed& bed)
      : queue(must(completion_queue::create(bed.context, 1))),
        memory(bed.domain, 64),
        pair(connect_to_itself(
            must(bed.builder(queue).access(all_rights).max_send_work_requests(128).build()))) {
    // No thread polls the completions, so the queue overflows.
    for (std::uint64_t id = 0; id <= queue.capacity(); ++id)
      must(pair.post_write({.elements = memory.gather(0, 8), .remote = memory.remote()},
                           {.id = id}));
  }

  completion_queue queue;
  buffer<> memory;
  connected pair;
};

/// Returns the next event of the given type, and skips events of other types.
[[nodiscard]] async_event event_of(const context& device, async_event_type type) {
  for (const auto until = deadline();;) {
    const auto event = must(device.wait_async_event(until));
    if (!event)
      throw failure(__FILE__, __LINE__, std::string("no event arrived: ") + to_string(type));
    if (event->type() == type) return *event;
  }
}

ibv_async_event about_port(ibv_event_type type, int port) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = port;
  return event;
}

}  // namespace

TEST_CASE("a wait for asynchronous events ends at its deadline if none occurs") {
  const testbed bed;
  CHECK_FALSE(must(bed.context.poll_async_event()));
  const auto until = clock::now() + moment;
  CHECK_FALSE(must(bed.context.wait_async_event(until)));
  CHECK(clock::now() >= until);
  CHECK_FALSE(must(bed.context.wait_async_event(clock::time_point::min())));
  CHECK((::fcntl(bed.context.async_event_file_descriptor(), F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a completion queue that overruns causes an event") {
  const testbed bed;
  std::optional<async_event> event;
  {
    overrun overrun(bed);
    event = event_of(bed.context, async_event_type::completion_queue_error);
    CHECK(event->element() == async_event_element::completion_queue);
    CHECK(event->severity() == async_event_severity::error);
    CHECK(event->concerns(overrun.queue));
    const completion_queue copy = overrun.queue;
    CHECK(event->concerns(copy));
    CHECK_FALSE(event->concerns(bed.left_queue));
    CHECK_FALSE(event->concerns(overrun.pair));
    CHECK_FALSE(event->queue_pair_number());
  }
  // The event object does not delay the destruction of its queue. A new queue may therefore get the
  // same address, and must not be mistaken for the destroyed one.
  std::vector<completion_queue> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(must(completion_queue::create(bed.context, 1)));
    CHECK_FALSE(event->concerns(others.back()));
  }
}

TEST_CASE("an overrun queue with unread events can be destroyed") {
  const testbed bed;
  {
    const overrun overrun(bed);
    pollfd readable{bed.context.async_event_file_descriptor(), POLLIN, 0};
    CHECK(::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE("an event of a queue pair has its number even after the queue pair is destroyed") {
  const testbed bed;
  std::optional<async_event> event;
  auto [left, right] = connect(bed);
  const queue_pair_number number = right.number();
  {
    const connected drained = std::move(right);
    start_draining(drained);
    event = event_of(bed.context, async_event_type::send_queue_drained);
    CHECK(event->concerns(drained));
    CHECK_FALSE(event->concerns(left));
    CHECK_FALSE(event->concerns(bed.left_queue));
  }
  CHECK(event->element() == async_event_element::queue_pair);
  CHECK(event->queue_pair_number() == number);
  CHECK_FALSE(event->concerns(left));
  std::ostringstream text;
  text << *event;
  CHECK_THAT(text.str(), Catch::Contains("send queue drained, queue pair 0x"));
}

TEST_CASE_METHOD(two_queue_pairs,
                 "a peer's bad rkey is reported at the queue pair that refused it") {
  buffer<> memory(bed.domain, 64);
  const remote_memory<access::remote_write> wrong(
      memory.remote().address(), 64, remote_key(memory.remote().rkey().value() ^ 0xff00));
  must(left.post_write({.elements = memory.gather(0, 8), .remote = wrong}, {.id = 1}));
  CHECK(status_of(take_one(bed.left_queue)) == work_status::remote_access_error);
  const auto event = must(bed.context.wait_async_event(clock::now() + moment));
  if (!event) SKIP("this device raises no event for a refused access");
  CHECK(event->type() == async_event_type::queue_pair_access_error);
  CHECK(event->concerns(right));
  CHECK_FALSE(event->concerns(left));
}

TEST_CASE_METHOD(two_queue_pairs, "an asynchronous event ends a wait but a signal does not") {
  struct sigaction before{};
  struct sigaction action{};
  action.sa_handler = [](int) {};  // without SA_RESTART
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  const pthread_t waiter = ::pthread_self();
  std::thread disturber([&, &drained = left] {
    for (int i = 0; i < 5; ++i) {
      // steady: this pause spreads the signals over the wait; the test passes whenever they arrive
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ::pthread_kill(waiter, SIGUSR1);
    }
    start_draining(drained);
  });
  const auto outcome = bed.context.wait_async_event(deadline());
  disturber.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  const auto event = must(outcome);
  REQUIRE(event);
  CHECK(event->concerns(left));
}

TEST_CASE("each asynchronous event is returned to exactly one of the waiting threads") {
  const testbed bed;
  constexpr int total = 8;
  std::atomic<int> got{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&] {
      while (got < total) {
        const auto event =
            bed.context.wait_async_event(clock::now() + std::chrono::milliseconds(50));
        if (!event.has_value()) return;
        if (event.assume_value()) ++got;
      }
    });
  std::vector<connected_pair> pairs;
  for (int i = 0; i < total; ++i) {
    pairs.push_back(connect(bed));
    start_draining(pairs.back().left);
  }
  for (std::thread& each : waiters) each.join();
  CHECK(got == total);
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE("injected events about a port and the device are returned") {
  const testbed bed;
  inject(about_port(IBV_EVENT_PORT_ERR, 1));
  const auto port = must(bed.context.poll_async_event());
  REQUIRE(port);
  CHECK(port->type() == async_event_type::port_error);
  CHECK(port->port() == port_number(1));
  inject(about_port(IBV_EVENT_DEVICE_FATAL, 0));
  const auto device = must(bed.context.wait_async_event(deadline()));
  REQUIRE(device);
  CHECK(device->severity() == async_event_severity::fatal);
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE("a device that fails permanently causes an event and ends waits on it") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  const failing_device failing("after:20ms=device-fatal");
  std::array<work_completion, 1> slots;
  const auto event = must(bed.context.wait_async_event(deadline()));
  REQUIRE(event);
  CHECK(event->type() == async_event_type::device_fatal);
  CHECK(event->element() == async_event_element::device);
  CHECK_FALSE(event->concerns(queue));
  CHECK(failure_of(queue.wait(slots, deadline())) == error_kind::driver);
}

TEST_CASE("a port that goes down and up again causes events with its number") {
  const testbed bed;
  const failing_device failing("port-down; after:20ms=port-up");
  for (const async_event_type type :
       {async_event_type::port_error, async_event_type::port_active}) {
    const auto event = must(bed.context.wait_async_event(deadline()));
    REQUIRE(event);
    CHECK(event->type() == type);
    CHECK(event->port() == bed.port.number());
  }
}
