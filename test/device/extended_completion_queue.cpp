// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"
#include <verbspp/queue/completion_queue_with.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr auto plain_fields = completion_feature::byte_count | completion_feature::immediate |
                              completion_feature::queue_pair_number;
constexpr auto timed_fields = plain_fields | completion_feature::timestamp;

template <completion_features Fields>
std::optional<extended_completion_queue<Fields>> extended_queue(const testbed& bed) {
  return supported(extended_completion_queue<Fields>::create(bed.context, 64),
                   "extended completion queues with these fields");
}

template <completion_features Fields>
struct extended_testbed {
  const testbed bed{};
  const std::optional<extended_completion_queue<Fields>> queue = extended_queue<Fields>(bed);

  [[nodiscard]] prepared extended() const {
    return must(bed.builder(*queue).access(all_rights).build());
  }
};

/// Fixtures that have an extended queue at one of their ends, either at the left end, which sends,
/// or at the right end, which receives.
template <completion_features Fields>
struct extended_sender : extended_testbed<Fields> {
  connected_pair pair = connect(this->extended(), must(this->bed.right().build()));
  buffer<> target{this->bed.domain, 8};
};
template <completion_features Fields>
struct extended_receiver : extended_testbed<Fields> {
  connected_pair pair = connect(must(this->bed.left().build()), this->extended());
  buffer<> outbox{this->bed.domain, pattern(48, 1)};
  buffer<> inbox{this->bed.domain, 64};
};

/// Polls until `count` completions have been visited.
template <class Queue, class Visit>
void take_each(const Queue& queue, std::size_t count, Visit visit) {
  std::size_t seen = 0;
  wait_until([&] { return (seen += must(queue.poll_each(visit, count - seen))) == count; },
             "completions");
}

}  // namespace

TEST_CASE_METHOD(extended_receiver<plain_fields>,
                 "an extended completion queue returns the requested fields") {
  CHECK(must(queue->poll_each([](const auto&) { FAIL("nothing was posted"); })) == 0);
  for (const std::uint64_t id : {1U, 2U, 3U})
    must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = id}));
  must(pair.left.post_send({.elements = outbox.gather()}, {.signaled = false}));
  must(pair.left.post_send({.elements = outbox.gather(0, 7), .immediate = immediate_data(0x55)}));
  take_success(bed.left_queue, 0);
  std::vector<std::uint32_t> lengths;
  take_each(*queue, 2, [&](const auto& completion) {
    CHECK(completion.is_success());
    CHECK(completion.wr_id() == lengths.size() + 1);
    CHECK(completion.queue_pair_number() == pair.right.number());
    const auto work = completion.get().value();
    CHECK(work.operation() == work_operation::receive);
    CHECK(work.immediate().has_value() == (completion.wr_id() == 2));
    if (work.immediate()) CHECK(work.immediate()->value() == 0x55);
    CHECK_FALSE(work.invalidated_rkey());
    lengths.push_back(work.byte_count().value());
  });
  CHECK(lengths == std::vector<std::uint32_t>{48, 7});
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "a polling session that takes everything leaves the queue empty") {
  std::uint64_t expected = 0;
  for (std::uint64_t id = 0; id < 300;) {
    for (const std::uint64_t end = id + 3; id < end; ++id)
      must(pair.left.post_write({.remote = target.remote()}, {.id = id}));
    // Without a limit on the number of completions, each call polls until the queue is empty.
    wait_until(
        [&] {
          must(queue->poll_each([&](const auto& completion) {
            CHECK(completion.is_success());
            REQUIRE(completion.wr_id() == expected++);
          }));
          return expected >= id;
        },
        "completions");
    REQUIRE(must(queue->poll_each([](const auto&) {})) == 0);
  }
}

TEST_CASE_METHOD(extended_receiver<plain_fields>, "an extended completion queue reports failures") {
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 9}));
  move_to_error(pair.right.native_handle());
  take_each(*queue, 1, [&](const auto& completion) {
    CHECK_FALSE(static_cast<bool>(completion));
    const auto failed = completion.get();
    REQUIRE(failed.has_error());
    CHECK(failed.error().status() == work_status::flushed);
    CHECK(failed.error().wr_id() == 9);
    CHECK(failed.error().queue_pair_number() == pair.right.number());
  });
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "polling sessions cannot be nested and end when an exception is thrown") {
  const auto other = extended_queue<plain_fields>(bed);
  REQUIRE(other);
  must(pair.left.post_write({.remote = target.remote()}, {.id = 1}));
  take_each(*queue, 1, [&](const auto&) {
    const error e = failure_of(queue->poll_each([](const auto&) {}));
    CHECK(e == error_kind::busy);
    CHECK_THAT(e.message(), Catch::Contains("sessions cannot be nested"));
    CHECK(failure_of(other->poll_each([](const auto&) {})) == error_kind::busy);
  });
  must(pair.left.post_write({.remote = target.remote()}, {.id = 2}));
  const auto throwing = [&] {
    wait_until(
        [&] {
          must(queue->poll_each([](const auto&) { throw std::runtime_error("visit"); }));
          return false;
        },
        "a completion");
  };
  CHECK_THROWS_WITH(throwing(), "visit");
  must(pair.left.post_write({.remote = target.remote()}, {.id = 3}));
  take_each(*queue, 1, [](const auto& completion) { CHECK(completion.wr_id() == 3); });
}

TEST_CASE_METHOD(extended_receiver<timed_fields>,
                 "fields read from a completion can be kept after the polling session") {
  constexpr std::uint32_t count = 4;
  for (std::uint32_t id = 0; id < count; ++id)
    must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = id}));
  for (std::uint32_t i = 0; i < count; ++i)
    must(pair.left.post_send(
        {.elements = outbox.gather(0, 10 * i + 1), .immediate = immediate_data(i)}));
  static_cast<void>(take(bed.left_queue, count));
  std::vector<extended_completed_work<timed_fields>> kept;
  std::vector<std::uint64_t> times;
  take_each(*queue, count, [&](const auto& completion) {
    kept.push_back(completion.get().value());
    times.push_back(completion.template get<completion_feature::timestamp>().value().timestamp());
  });
  REQUIRE(kept.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) {
    CHECK(kept[i].is_receive());
    CHECK(kept[i].byte_count() == 10 * i + 1);
    CHECK(kept[i].immediate()->value() == i);
    CHECK(kept[i].timestamp() == times[i]);
  }
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "in an extended queue, a read has a byte count and a write has none") {
  buffer<> memory(bed.domain, 8);
  must(pair.left.post_write({.elements = memory.gather(), .remote = memory.remote()}));
  take_each(*queue, 1, [](const auto& completion) {
    CHECK_FALSE(completion.get().value().byte_count());
    CHECK_FALSE(completion.get().value().is_receive());
  });
  must(pair.left.post_read({.elements = memory.scatter(), .remote = memory.remote()}));
  take_each(*queue, 1,
            [](const auto& completion) { CHECK(completion.get().value().byte_count() == 8U); });
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "a visitor may take the completion by value or by reference") {
  std::uint64_t last = 0;
  std::uint64_t posted = 0;
  const auto check = [&](auto visit) {
    must(pair.left.post_write({.remote = target.remote()}, {.id = ++posted}));
    take_each(*queue, 1, visit);
    CHECK(last == posted);
  };
  check([&](auto& completion) { last = completion.wr_id(); });
  check([&](const auto& completion) { last = completion.wr_id(); });
  check([&](auto&& completion) { last = completion.wr_id(); });
  check([&](auto completion) { last = completion.wr_id(); });
  check([&, calls = 0](auto& completion) mutable { last = completion.wr_id() + 0 * ++calls; });
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "polling a queue within its own polling session fails an assertion") {
  must(pair.left.post_write({.remote = target.remote()}, {.id = 1}));
  std::vector<work_completion> slots(1);
  take_each(*queue, 1, [&](const auto&) {
    CHECK(must(bed.right_queue.poll(slots)).empty());
    CHECK_THAT(assertion_in([&] { static_cast<void>(queue->poll(slots)); }),
               Catch::Contains("poll was called from the function that was passed to poll_each"));
  });
  CHECK(must(queue->poll(slots)).empty());
}

TEST_CASE_METHOD(extended_sender<timed_fields>,
                 "the timestamps of successive completions do not decrease") {
  CHECK(must(bed.context.device_clock_khz()) > 0);
  for (std::uint64_t id = 0; id < 8; ++id)
    must(pair.left.post_write({.remote = target.remote()}, {.id = id}));
  std::uint64_t last = 0;
  take_each(*queue, 8, [&](const auto& completion) {
    const std::uint64_t now = completion.get().value().timestamp();
    CHECK(now >= last);
    CHECK(now > 0);
    last = now;
  });
}

TEST_CASE_METHOD(extended_sender<plain_fields>,
                 "an extended completion queue can be polled like a plain one") {
  must(pair.left.post_write({.remote = target.remote()}, {.id = 1}));
  take_success(*queue, 1);
}

TEST_CASE("the capacity of an extended completion queue is checked as for a plain one") {
  const testbed bed;
  const auto refused = [&](std::size_t capacity) {
    return failure_of(extended_completion_queue<plain_fields>::create(bed.context, capacity));
  };
  CHECK(refused(0) == error_kind::invalid_input);
  CHECK(refused(static_cast<std::size_t>(bed.limits.max_cqe) + 1) == error_kind::invalid_input);
}

namespace {

constexpr auto waitable_fields = plain_fields | completion_feature::waitable;
using waitable_extended_queue = completion_queue_with<waitable_fields>;

template <class Place>
waitable_extended_queue waitable_queue(const Place& place) {
  return supported(waitable_extended_queue::create(place, 64),
                   "extended completion queues that can be waited for");
}

/// Two connected queue pairs. The receives of the right one complete in an extended queue, and a
/// thread can sleep until they do.
struct sleeper {
  sleeper(const testbed& bed, waitable_extended_queue where)
      : sent(bed.left_queue),
        queue(std::move(where)),
        pair(connect(must(bed.left().build()),
                     must(bed.builder(queue).access(all_rights).build()))) {}

  void send(std::uint64_t id) const {
    must(pair.right.post_receive({}, {.id = id}));
    must(pair.left.post_send({}, {.id = id}));
  }
  /// Sends a message, and returns when the queue's event has reported that the receive completed.
  void send_now(std::uint64_t id) const {
    must(queue.request_notification());
    send(id);
    take_success(sent, id);
    REQUIRE(must(queue.completion_channel().wait(patience)));
  }

  completion_queue sent;
  waitable_extended_queue queue;
  mutable connected_pair pair;
};

struct one_sleeper {
  const testbed bed{};
  const sleeper ends{bed, waitable_queue(bed.context)};
};

}  // namespace

TEST_CASE_METHOD(one_sleeper, "a thread can sleep on an extended completion queue") {
  const auto before = clock::now();
  CHECK(must(ends.queue.wait_each([](const auto&) { FAIL("nothing was sent"); }, moment)) == 0);
  CHECK(clock::now() >= before + moment);
  for (std::uint64_t id = 0; id < 20; ++id) {
    std::thread sender([&] {
      // steady: the pauses vary the time between the start of the wait and the send; the test
      // passes with any pause
      std::this_thread::sleep_for(std::chrono::milliseconds(id % 4));
      ends.send(id);
    });
    std::uint64_t seen = 1000;
    const auto outcome = ends.queue.wait_each([&](auto& completion) { seen = completion.wr_id(); },
                                              clock::now() + patience);
    sender.join();
    CHECK(must(outcome) == 1);
    CHECK(seen == id);
    take_success(bed.left_queue, id);
  }
}

TEST_CASE_METHOD(
    one_sleeper,
    "a wait for an extended queue finds a completion that precedes its request for an event") {
  static void (*before_request)() = nullptr;
  static int (*original)(ibv_cq*, int) = nullptr;
  static const sleeper* sender = nullptr;
  sender = &ends;
  before_request = [] { sender->send_now(3); };
  auto& operation = ends.queue.native_handle()->context->ops.req_notify_cq;
  original = std::exchange(operation, [](ibv_cq* queue, int solicited_only) {
    if (before_request != nullptr) std::exchange(before_request, nullptr)();
    return original(queue, solicited_only);
  });
  const auto until = clock::now() + patience;
  const auto outcome = ends.queue.wait_each([](const auto&) {}, until);
  operation = original;
  CHECK(must(outcome) == 1);
  CHECK(clock::now() < until);
}

TEST_CASE_METHOD(
    one_sleeper,
    "a wait takes at most the given number of completions and refuses a limit of zero") {
  for (const std::uint64_t id : {1U, 2U, 3U}) ends.send_now(id);
  std::vector<std::uint64_t> seen;
  const auto visit = [&](const auto& completion) { seen.push_back(completion.wr_id()); };
  CHECK(must(ends.queue.wait_each(visit, patience, 2)) == 2);
  CHECK(must(ends.queue.wait_each(visit, patience, 2)) == 1);
  CHECK(seen == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(failure_of(ends.queue.wait_each(visit, patience, 0)) == error_kind::invalid_input);
}

TEST_CASE_METHOD(one_sleeper, "waiting within a polling session is refused") {
  ends.send_now(1);
  CHECK(must(ends.queue.wait_each(
            [&](const auto&) {
              CHECK(failure_of(ends.queue.wait_each([](const auto&) {}, patience)) ==
                    error_kind::busy);
            },
            patience)) == 1);
}

TEST_CASE("an extended queue can report to a channel that other queues share") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto plain = must(waitable_completion_queue::create(channel, 8));
  const sleeper ends(bed, waitable_queue(channel));
  CHECK(ends.queue.completion_channel() == channel);
  must(plain.request_notification());
  must(ends.queue.request_notification());
  ends.send(7);
  take_success(ends.sent, 7);
  const auto event = must(channel.wait(patience));
  REQUIRE(event);
  CHECK(*event == ends.queue);
  // The event returns the queue as a plain waitable queue. `with` restores its other features.
  const auto again = must(event->with<waitable_fields>());
  CHECK(must(again.poll_each([](const auto& completion) { CHECK(completion.wr_id() == 7); })) == 1);
  CHECK_FALSE(must(channel.poll()));
}

TEST_CASE_METHOD(one_sleeper, "a waitable extended queue can be used without its extensions") {
  const waitable_completion_queue waitable = ends.queue;
  CHECK(waitable == ends.queue);
  ends.send_now(4);
  std::vector<work_completion> slots(2);
  CHECK(must(waitable.wait(slots, patience)).front().wr_id() == 4);
  ends.send_now(5);
  CHECK(must(ends.queue.wait(slots, patience)).front().wr_id() == 5);
  const extended_completion_queue<plain_fields> extended = ends.queue;
  CHECK(must(extended.poll_each([](const auto&) {})) == 0);
}

TEST_CASE("a queue that was passed on as a plain queue can be given its features again") {
  const testbed bed;
  const auto plain = must(completion_queue::create(bed.context, 4));
  const auto waitable = must(waitable_completion_queue::create(bed.context, 4));
  const completion_queue passed_on = waitable;
  CHECK(must(passed_on.with<completion_feature::waitable>()) == waitable);
  CHECK(must(passed_on.with<completion_features{}>()) == waitable);
  for (const error& e :
       {failure_of(plain.with<completion_feature::waitable>()),
        failure_of(passed_on.with<completion_feature::timestamp>()),
        failure_of(
            passed_on.with<completion_feature::waitable | completion_feature::extended>())}) {
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(),
               Catch::Contains("was not created or adopted with all of these features"));
  }
  auto ends = must(bed.builder(waitable).access(all_rights).build());
  CHECK(must(ends.send_completion_queue().with<completion_feature::waitable>()) == waitable);
  const auto extended = extended_queue<plain_fields>(bed);
  const completion_queue known = *extended;
  must(known.with<completion_feature::extended>());
  must(known.with<plain_fields>());
  must(known.with<completion_feature::immediate>());
}

TEST_CASE("requests complete in a queue for a single thread") {
  const testbed bed;
  using single = completion_queue_with<completion_feature::single_threaded>;
  const single queue =
      supported(single::create(bed.context, 16), "completion queues for a single thread");
  buffer<> target(bed.domain, 8);
  const auto write = [&](const completion_queue& where, std::uint64_t id) {
    connected alone = connect_to_itself(must(bed.builder(where).access(all_rights).build()));
    must(alone.post_write({.remote = target.remote()}, {.id = id}));
    return take_one(where).wr_id();
  };
  CHECK(write(queue, 1) == 1);
  using all = completion_queue_with<completion_feature::single_threaded | waitable_fields>;
  const auto waitable = must(all::create(bed.context, 16));
  CHECK(write(waitable, 2) == 2);
  CHECK(must(waitable.wait_each([](const auto&) {}, moment)) == 0);
}

// NOLINTBEGIN(bugprone-use-after-move): this test uses a handle after it was moved from
TEST_CASE("a moved-from extended queue is refused or fails an assertion") {
  const testbed bed;
  auto made = waitable_extended_queue::create(bed.context, 8);
  if (made.has_error()) return;
  auto queue = std::move(made).assume_value();
  const auto moved = std::move(queue);
  CHECK(failure_of(queue.wait_each([](const auto&) {}, moment)) == error_kind::invalid_input);
  CHECK(failure_of(queue.with<completion_feature::extended>()) == error_kind::invalid_input);
  CHECK_THAT(assertion_in([&] { static_cast<void>(queue.poll_each([](const auto&) {})); }),
             Catch::Contains("this completion queue was moved from"));
  CHECK(must(moved.poll_each([](const auto&) {})) == 0);
}
// NOLINTEND(bugprone-use-after-move)
