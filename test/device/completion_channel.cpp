// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"
#include "failing_verb.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using slots = std::array<work_completion, 8>;

/// Pairs of connected queue pairs. In each pair, the receives complete in a waitable queue.
struct waiting {
  explicit waiting(const testbed& bed, std::size_t queues = 1)
      : channel(must(completion_channel::create(bed.context))), memory(bed.domain, 64) {
    for (std::size_t i = 0; i < queues; ++i) {
      this->queues.push_back(must(waitable_completion_queue::create(channel, 64)));
      pairs.push_back(connect(must(bed.left().max_send_work_requests(64).build()),
                              must(bed.builder(this->queues.back())
                                       .access(all_rights)
                                       .max_receive_work_requests(64)
                                       .build())));
    }
  }

  /// Posts a receive, and then a send whose message completes it.
  void send(std::size_t queue, std::uint64_t id, bool solicited = false) {
    must(pairs[queue].right.post_receive({.elements = memory.scatter()}, {.id = id}));
    must(pairs[queue].left.post_send({.solicited = solicited}, {.id = id}));
  }
  [[nodiscard]] const waitable_completion_queue& queue() const { return queues.front(); }

  completion_channel channel;
  std::vector<waitable_completion_queue> queues;
  buffer<> memory;
  std::vector<connected_pair> pairs;
};

/// A fixture with one waitable queue, and the pair whose receives complete in it.
struct one_waiting {
  const testbed bed{};
  waiting ends{bed};
};

[[nodiscard]] clock::time_point deadline() { return clock::now() + patience; }

/// Waits until a send has completed. Its receive may complete a little later.
void let_arrive(const testbed& bed) { static_cast<void>(take_one(bed.left_queue)); }

/// Waits until the descriptor has events to read.
void wait_readable(int file_descriptor) {
  epoll_event event{};
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  event.events = EPOLLIN;
  REQUIRE(::epoll_ctl(epoll, EPOLL_CTL_ADD, file_descriptor, &event) == 0);
  CHECK(::epoll_wait(epoll, &event, 1,
                     static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
  ::close(epoll);
}

}  // namespace

TEST_CASE_METHOD(one_waiting, "a wait returns the available completions") {
  ends.send(0, 1);
  ends.send(0, 2);
  static_cast<void>(take(bed.left_queue, 2));
  slots into;
  std::size_t got = 0;
  while (got < 2) {
    const auto arrived = must(ends.queue().wait(into, deadline()));
    REQUIRE_FALSE(arrived.empty());
    CHECK(arrived.data() == into.data());
    for (const work_completion& each : arrived) CHECK(each.wr_id() == ++got);
  }
}

TEST_CASE_METHOD(one_waiting, "a wait ends when a completion arrives") {
  for (std::uint64_t id = 0; id < 20; ++id) {
    std::thread sender([&] {
      // steady: the pauses vary the time between the start of the wait and the send; the test
      // passes with any pause
      std::this_thread::sleep_for(std::chrono::milliseconds(id % 4));
      ends.send(0, id);
    });
    slots into;
    const auto outcome = ends.queue().wait(into, deadline());
    sender.join();
    const auto arrived = must(outcome);
    REQUIRE(arrived.size() == 1);
    CHECK(arrived.front().wr_id() == id);
    let_arrive(bed);
  }
}

TEST_CASE("a wait without completions returns none at the deadline") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  slots into;
  for (const auto length : {std::chrono::milliseconds(0), std::chrono::milliseconds(30)}) {
    const auto until = clock::now() + length;
    CHECK(must(queue.wait(into, until)).empty());
    CHECK(clock::now() >= until);
  }
  CHECK(must(queue.wait(into, clock::time_point::min())).empty());
  CHECK_FALSE(must(queue.completion_channel().wait(clock::now() + moment)));
  CHECK_FALSE(must(queue.completion_channel().poll()));
}

TEST_CASE_METHOD(one_waiting,
                 "a wait with a past deadline still returns the available completions") {
  ends.send(0, 7);
  let_arrive(bed);
  slots into;
  wait_until(
      [&] {
        const auto arrived = must(ends.queue().wait(into, clock::time_point::min()));
        return !arrived.empty() && arrived.front().wr_id() == 7;
      },
      "the receive to complete");
}

TEST_CASE_METHOD(one_waiting,
                 "a wait misses no completion between its poll and its notification request") {
  constexpr std::uint64_t rounds = 300;
  std::atomic<std::uint64_t> taken{0};
  std::thread sender([&] {
    for (std::uint64_t id = 0; id < rounds; ++id) {
      ends.send(0, id);
      let_arrive(bed);
      while (taken <= id) std::this_thread::yield();
    }
  });
  slots into;
  while (taken < rounds) {
    const auto until = deadline();
    const auto outcome = ends.queue().wait(into, until);
    // A wait that returns the completion only at the deadline has failed, because the completion
    // should have woken it earlier.
    if (!outcome.has_value() || outcome.assume_value().empty() || clock::now() >= until) break;
    taken += outcome.assume_value().size();
  }
  const std::uint64_t reached = taken.exchange(rounds);
  sender.join();
  CHECK(reached == rounds);
}

TEST_CASE("a completion just before the notification request ends the wait") {
  const testbed bed;
  static void (*before_request)() = nullptr;
  static int (*original)(ibv_cq*, int) = nullptr;
  static waiting* sender = nullptr;
  static const testbed* sender_bed = nullptr;
  waiting ends(bed);
  sender = &ends;
  sender_bed = &bed;
  before_request = [] {
    sender->send(0, 3);
    let_arrive(*sender_bed);
    // The send may complete before the receive does, so wait for a moment.
    // steady: after this pause, the completion has likely arrived; if it arrives later, its event
    // ends the wait
    std::this_thread::sleep_for(moment);
  };
  auto& operation = ends.queue().native_handle()->context->ops.req_notify_cq;
  original = std::exchange(operation, [](ibv_cq* queue, int solicited_only) {
    if (before_request != nullptr) std::exchange(before_request, nullptr)();
    return original(queue, solicited_only);
  });
  const auto until = deadline();
  slots into;
  const auto outcome = ends.queue().wait(into, until);
  operation = original;
  CHECK(must(outcome).size() == 1);
  CHECK(clock::now() < until);
}

TEST_CASE_METHOD(one_waiting, "a wait accepts a timeout instead of a deadline") {
  slots into;
  const auto before = clock::now();
  CHECK(must(ends.queue().wait(into, moment)).empty());
  CHECK(clock::now() >= before + moment);
  CHECK_FALSE(must(ends.channel.wait(moment)));
  CHECK_FALSE(must(bed.context.wait_async_event(moment)));
  for (const auto length : {std::chrono::seconds::min(), std::chrono::seconds(0)}) {
    CHECK(must(ends.queue().wait(into, length)).empty());
    CHECK_FALSE(must(ends.channel.wait(length)));
  }
  std::thread sender([&] { ends.send(0, 1); });
  const auto outcome = ends.queue().wait(into, std::chrono::hours::max());
  sender.join();
  CHECK(must(outcome).front().wr_id() == 1);
}

// NOLINTBEGIN(bugprone-use-after-move): these tests use handles after they were moved from
TEST_CASE("a moved-from waitable queue is refused") {
  const testbed bed;
  auto queue = must(waitable_completion_queue::create(bed.context, 4));
  const auto moved = std::move(queue);
  slots into;
  for (const error& e :
       {failure_of(queue.wait(into, moment)), failure_of(queue.request_notification())}) {
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("was moved from"));
  }
  CHECK(queue.native_handle() == nullptr);
  CHECK(queue.completion_channel().native_handle() == nullptr);
  CHECK_THAT(failure_of(queue.completion_channel().poll()).message(),
             Catch::Contains("came from a moved-from completion queue"));
  queue = moved;
  CHECK(must(queue.wait(into, moment)).empty());
}

TEST_CASE("a moved-from completion channel is empty and refused") {
  const testbed bed;
  auto channel = must(completion_channel::create(bed.context));
  const auto moved = std::move(channel);
  CHECK(channel.native_handle() == nullptr);
  CHECK(channel.file_descriptor() == -1);
  const completion_channel copy = channel;
  CHECK(copy == channel);
  CHECK(channel != moved);
  for (const error& e : {failure_of(channel.poll()), failure_of(channel.wait(moment)),
                         failure_of(waitable_completion_queue::create(channel, 4))}) {
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("this completion channel was moved from"));
  }
  std::ostringstream text;
  text << channel;
  CHECK(text.str() == "completion channel that was moved from");
  CHECK_THAT(assertion_in([&] { static_cast<void>(channel.context()); }),
             Catch::Contains("this completion channel was moved from"));
  channel = moved;
  CHECK_FALSE(must(channel.poll()));
}
// NOLINTEND(bugprone-use-after-move)

TEST_CASE("a wait without a slot for a completion is refused") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  CHECK(failure_of(queue.wait({}, deadline())) == error_kind::invalid_input);
}

TEST_CASE_METHOD(one_waiting, "signals do not end a wait") {
  struct sigaction before{};
  struct sigaction action{};
  action.sa_handler = [](int) {};  // without SA_RESTART
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  const pthread_t waiter = ::pthread_self();
  std::atomic<bool> ended{false};
  bool ended_early = false;
  std::thread disturber([&] {
    for (int i = 0; i < 10; ++i) {
      ::pthread_kill(waiter, SIGUSR1);
      // steady: this pause spreads the signals over the wait; the test passes whenever they arrive
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ended_early = ended;
    ends.send(0, 5);
  });
  slots into;
  const auto outcome = ends.queue().wait(into, deadline());
  ended = true;
  disturber.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  CHECK_FALSE(ended_early);
  CHECK(must(outcome).size() == 1);
}

TEST_CASE_METHOD(one_waiting, "a wait for solicited completions sleeps through other completions") {
  const auto queue = ends.queue();
  must(queue.request_notification(notify_for::solicited_only));
  ends.send(0, 1);
  let_arrive(bed);
  CHECK_FALSE(must(ends.channel.wait(clock::now() + moment)));
  ends.send(0, 2, true);
  CHECK(must(ends.channel.wait(deadline())) == queue);
  CHECK(take(queue, 2)[1].wr_id() == 2);

  std::thread sender([&] { ends.send(0, 3, true); });
  slots into;
  const auto outcome = queue.wait(into, deadline(), notify_for::solicited_only);
  sender.join();
  CHECK(must(outcome).front().wr_id() == 3);
}

TEST_CASE_METHOD(one_waiting, "a failed completion counts as solicited") {
  must(ends.queue().request_notification(notify_for::solicited_only));
  must(ends.pairs[0].right.post_receive({.elements = ends.memory.scatter()}, {.id = 1}));
  move_to_error(ends.pairs[0].right.native_handle());
  CHECK(must(ends.channel.wait(deadline())) == ends.queue());
  CHECK(status_of(take_one(ends.queue())) == work_status::flushed);
}

TEST_CASE("an event of a completion channel names its queue") {
  const testbed bed;
  waiting ends(bed, 3);
  for (const std::size_t which : {2U, 0U, 1U, 2U}) {
    for (const auto& queue : ends.queues) must(queue.request_notification());
    ends.send(which, which);
    const auto event = must(ends.channel.wait(deadline()));
    REQUIRE(event);
    CHECK(*event == ends.queues[which]);
    CHECK(event->completion_channel() == ends.channel);
    CHECK(take_one(*event).wr_id() == which);
    let_arrive(bed);
    CHECK_FALSE(must(ends.channel.poll()));
  }
}

TEST_CASE("an event that a wait for another queue has read is not lost") {
  const testbed bed;
  waiting ends(bed, 2);
  must(ends.queues[1].request_notification());
  ends.send(1, 1);
  let_arrive(bed);
  wait_readable(ends.channel.file_descriptor());
  slots into;
  CHECK(must(ends.queues[0].wait(into, clock::now() + moment)).empty());
  CHECK(must(ends.channel.poll()) == ends.queues[1]);
  CHECK(take_one(ends.queues[1]).wr_id() == 1);
}

TEST_CASE("an event loop of the program serves the queues of a channel") {
  const testbed bed;
  waiting ends(bed, 2);
  CHECK((::fcntl(ends.channel.file_descriptor(), F_GETFL) & O_NONBLOCK) != 0);
  constexpr std::size_t each = 20;
  std::thread sender([&] {
    for (std::uint64_t id = 0; id < each; ++id) {
      ends.send(0, id);
      ends.send(1, id);
      static_cast<void>(take(bed.left_queue, 2));
    }
  });
  std::array<std::size_t, 2> got{};
  const auto drain = [&](const waitable_completion_queue& queue) {
    must(queue.request_notification());
    slots into;
    for (;;) {
      const auto arrived = must(queue.poll(into));
      if (arrived.empty()) return;
      got[queue == ends.queues[0] ? 0 : 1] += arrived.size();
    }
  };
  for (const auto& queue : ends.queues) drain(queue);
  while (got[0] < each || got[1] < each) {
    wait_readable(ends.channel.file_descriptor());
    while (const auto event = must(ends.channel.poll())) drain(*event);
  }
  sender.join();
  CHECK(got[0] == each);
  CHECK(got[1] == each);
}

TEST_CASE("several threads can wait for different queues of one channel") {
  const testbed bed;
  constexpr std::size_t count = 3;
  constexpr std::uint64_t rounds = 50;
  waiting ends(bed, count);
  std::array<std::atomic<std::uint64_t>, count> got{};
  std::vector<std::thread> waiters;
  for (std::size_t which = 0; which < count; ++which)
    waiters.emplace_back([&, which] {
      slots into;
      while (got[which] < rounds) {
        const auto until = deadline();
        const auto outcome = ends.queues[which].wait(into, until);
        if (!outcome.has_value() || outcome.assume_value().empty() || clock::now() >= until) return;
        got[which] += outcome.assume_value().size();
      }
    });
  for (std::uint64_t id = 0; id < rounds; ++id)
    for (std::size_t which = 0; which < count; ++which) {
      ends.send((which + id) % count, id);
      let_arrive(bed);
    }
  for (std::thread& each : waiters) each.join();
  for (const auto& each : got) CHECK(each == rounds);
}

TEST_CASE("several threads that wait for one queue share its completions") {
  const testbed bed;
  constexpr std::uint64_t total = 200;
  waiting ends(bed);
  std::atomic<std::uint64_t> got{0};
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&] {
      std::array<work_completion, 1> into;
      while (got < total) {
        // If other threads take the last completions, this thread sleeps until the deadline.
        const auto outcome = ends.queue().wait(into, clock::now() + std::chrono::milliseconds(200));
        if (!outcome.has_value()) return;
        for (const work_completion& each : outcome.assume_value()) {
          sum += each.wr_id();
          ++got;
        }
      }
    });
  for (std::uint64_t id = 1; id <= total; ++id) {
    if (id > 32)
      wait_until([&] { return got + 32 >= id; }, "the waiting threads to take completions");
    ends.send(0, id);
    let_arrive(bed);
  }
  for (std::thread& each : waiters) each.join();
  CHECK(got == total);
  CHECK(sum == total * (total + 1) / 2);
}

TEST_CASE_METHOD(
    one_waiting,
    "each of two threads that wait for one queue gets a completion, whichever reads the event") {
  std::atomic<std::uint64_t> got{0};
  const auto take_one_each = [&] {
    std::array<work_completion, 1> into;
    const auto outcome = ends.queue().wait(into, deadline());
    if (outcome.has_value()) got += outcome.assume_value().size();
  };
  for (int round = 1; round <= 20; ++round) {
    std::thread first(take_one_each);
    std::thread second(take_one_each);
    ends.send(0, 1);
    ends.send(0, 2);
    first.join();
    second.join();
    CHECK(got == 2U * static_cast<unsigned>(round));
    static_cast<void>(take(bed.left_queue, 2));
  }
}

TEST_CASE("a wait gets its event even while another thread reads events") {
  const testbed bed;
  waiting ends(bed, 2);
  for (std::uint64_t id = 0; id < 60; ++id) {
    std::atomic<bool> ended{false};
    std::atomic<bool> in_time{false};
    std::thread waiter([&] {
      const auto until = deadline();
      slots into;
      const auto outcome = ends.queue().wait(into, until);
      in_time = outcome.has_value() && outcome.assume_value().size() == 1 && clock::now() < until;
      ended = true;
    });
    slots into;
    static_cast<void>(must(ends.queues[1].wait(into, clock::now() + std::chrono::milliseconds(1))));
    ends.send(0, id);
    while (!ended) {
      static_cast<void>(must(ends.channel.poll()));
      static_cast<void>(must(ends.queues[1].wait(into, clock::now())));
    }
    waiter.join();
    CHECK(in_time);
    let_arrive(bed);
  }
}

TEST_CASE("a queue with unread events can be destroyed") {
  const testbed bed;
  {
    waiting ends(bed, 2);
    for (const auto& queue : ends.queues) must(queue.request_notification());
    ends.send(0, 1);
    ends.send(1, 1);
    static_cast<void>(take(bed.left_queue, 2));
    wait_readable(ends.channel.file_descriptor());
  }
  {
    // A wait for the first queue reads the event of the second queue from the channel. The second
    // queue is destroyed before any wait for it has used the event.
    waiting ends(bed, 2);
    must(ends.queues[1].request_notification());
    ends.send(1, 1);
    let_arrive(bed);
    wait_readable(ends.channel.file_descriptor());
    slots into;
    CHECK(must(ends.queues[0].wait(into, clock::now())).empty());
    CHECK(must(ends.queues[0].wait(into, clock::now() + moment)).empty());
    ends.pairs.pop_back();
    ends.queues.pop_back();
    CHECK_FALSE(must(ends.channel.poll()));
  }
  SUCCEED("no destruction waited for the acknowledgement of an event");
}

TEST_CASE("a queue that had many events can be destroyed") {
  const testbed bed;
  for (const std::uint64_t events : {1U, 63U, 64U, 65U, 150U}) {
    waiting ends(bed);
    for (std::uint64_t id = 0; id < events; ++id) {
      must(ends.queue().request_notification());
      ends.send(0, id);
      REQUIRE(must(ends.channel.wait(deadline())) == ends.queue());
      CHECK(take_one(ends.queue()).wr_id() == id);
      let_arrive(bed);
    }
  }
  SUCCEED("no destruction waited for the acknowledgement of an event");
}

TEST_CASE("queues can be destroyed while another thread reads the events of their channel") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  buffer<> memory(bed.domain, 64);
  std::atomic<bool> done{false};
  std::atomic<int> events{0};
  std::thread reader([&] {
    while (!done) {
      const auto outcome = channel.wait(clock::now() + std::chrono::milliseconds(5));
      if (!outcome.has_value()) return;
      if (outcome.assume_value()) ++events;
    }
  });
  for (int round = 0; round < 60; ++round) {
    auto queue = std::make_unique<waitable_completion_queue>(
        must(waitable_completion_queue::create(channel, 8)));
    must(queue->request_notification());
    {
      connected alone = connect_to_itself(must(bed.builder(*queue).access(all_rights).build()));
      must(alone.post_receive({.elements = memory.scatter()}, {.id = 1}));
      must(alone.post_send({}, {.id = 2}));
      // Spins for a short time, during which the event may or may not arrive. A thread that yielded
      // instead might not get a processor back for a long time.
      for (const auto end = clock::now() + std::chrono::microseconds(2 * round);
           clock::now() < end;) {
      }
    }
    queue.reset();
  }
  done = true;
  reader.join();
  SUCCEED(events << " events were taken");
}

TEST_CASE("an event that is read while its queue is being destroyed is dropped") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  bool none = false;
  {
    buffer<> memory(bed.domain, 64);
    const auto queue = must(waitable_completion_queue::create(channel, 8));
    connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
    must(queue.request_notification());
    must(alone.post_receive({.elements = memory.scatter()}, {.id = 1}));
    must(alone.post_send({}, {.id = 2}));
    wait_readable(channel.file_descriptor());
    before_next_destroy_cq([&] { none = !must(channel.poll()); });
  }
  CHECK(none);
}

TEST_CASE("a waitable queue keeps its channel and its context alive") {
  const release_watch watch;
  const auto queue = [&] {
    const context opened = must(open_device(device_name()));
    return must(waitable_completion_queue::create(must(completion_channel::create(opened)), 4));
  }();
  slots into;
  CHECK(must(queue.wait(into, clock::now() + moment)).empty());
  const completion_channel channel = queue.completion_channel();
  CHECK(channel == queue.completion_channel());
  CHECK(channel.context() == queue.context());
  CHECK(queue.native_handle()->channel == channel.native_handle());
}

TEST_CASE("a waitable queue refuses the same capacities as a completion queue") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  CHECK(failure_of(waitable_completion_queue::create(channel, 0)) == error_kind::invalid_input);
  CHECK(failure_of(waitable_completion_queue::create(
            channel, static_cast<std::size_t>(bed.limits.max_cqe) + 1)) ==
        error_kind::invalid_input);
}

TEST_CASE("a channel that cannot be created reports the reason") {
  const testbed bed;
  const failing_verb fails("ibv_create_comp_channel", EMFILE);
  const error e = failure_of(waitable_completion_queue::create(bed.context, 4));
  CHECK(e == error_kind::resource_exhausted);
  CHECK(e.native_errno() == EMFILE);
  CHECK_THAT(e.message(),
             Catch::Contains("ibv_create_comp_channel") && Catch::Contains("ulimit -n"));
}

TEST_CASE("completion queues and channels print their properties") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  std::ostringstream text;
  text << queue << '\n' << queue.completion_channel() << '\n' << bed.left_queue;
  CHECK_THAT(text.str(),
             Catch::Contains(device_name()) &&
                 Catch::Contains("room for " + std::to_string(queue.capacity())) &&
                 Catch::Contains("completion channel fd " +
                                 std::to_string(queue.completion_channel().file_descriptor())));
}
