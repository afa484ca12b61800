// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"
#include <verbspp/queue/extended_completion_queue.hpp>

#include <optional>
#include <stdexcept>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr auto plain_fields = completion_field::byte_count | completion_field::immediate |
                              completion_field::queue_pair_number;
constexpr auto timed_fields = plain_fields | completion_field::timestamp;

template <completion_fields Fields>
std::optional<extended_completion_queue<Fields>> extended_queue(const testbed& bed) {
  auto queue = extended_completion_queue<Fields>::create(bed.context, 64);
  if (queue.has_value()) return std::move(queue).assume_value();
  INFO(queue.error());
  REQUIRE(queue.error() == error_kind::not_supported);
  WARN("this device has no extended completion queues with these fields");
  return std::nullopt;
}

/// Polls until `count` completions have been visited.
template <class Queue, class Visit>
void take_each(const Queue& queue, std::size_t count, Visit visit) {
  std::size_t seen = 0;
  wait_until([&] { return (seen += must(queue.poll_each(visit, count - seen))) == count; },
             "completions");
}

}  // namespace

TEST_CASE("an extended completion queue tells the fields that were asked for") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.left().build()), must(bed.builder(*queue).access(all_rights).build()));
  CHECK(must(queue->poll_each([](const auto&) { FAIL("nothing was posted"); })) == 0);
  buffer<> outbox(bed.domain, pattern(48, 1));
  buffer<> inbox(bed.domain, 64);
  for (const std::uint64_t id : {1U, 2U, 3U})
    must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = id}));
  must(pair.left.post_send({.elements = outbox.gather()}, {.signaled = false}));
  must(pair.left.post_send({.elements = outbox.gather(0, 7), .immediate = immediate_data(0x55)}));
  take_success(bed.left_queue, 0);
  std::vector<std::uint32_t> lengths;
  take_each(*queue, 2, [&](const auto& completion) {
    CHECK(completion.is_success());
    CHECK(completion.wr_id() == lengths.size() + 1);
    CHECK(completion.queue_pair_number() == pair.right.number().value());
    const auto work = completion.get().value();
    CHECK(work.operation() == work_operation::receive);
    CHECK(work.immediate().has_value() == (completion.wr_id() == 2));
    if (work.immediate()) CHECK(work.immediate()->value() == 0x55);
    CHECK_FALSE(work.invalidated_rkey());
    lengths.push_back(work.byte_count());
  });
  CHECK(lengths == std::vector<std::uint32_t>{48, 7});
}

TEST_CASE("a polling session that took everything leaves nothing behind") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.builder(*queue).access(all_rights).build()), must(bed.right().build()));
  buffer<> target(bed.domain, 8);
  std::uint64_t expected = 0;
  for (std::uint64_t id = 0; id < 300;) {
    for (const std::uint64_t end = id + 3; id < end; ++id)
      must(pair.left.post_write({.remote = target.remote()}, {.id = id}));
    // Without a limit, so that the device says when there are no more.
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

TEST_CASE("an extended completion queue tells failures") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.left().build()), must(bed.builder(*queue).access(all_rights).build()));
  buffer<> inbox(bed.domain, 64);
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 9}));
  move_to_error(pair.right.native_handle());
  take_each(*queue, 1, [&](const auto& completion) {
    CHECK_FALSE(static_cast<bool>(completion));
    const auto failed = completion.get();
    REQUIRE(failed.has_error());
    CHECK(failed.error().status() == work_status::flushed);
    CHECK(failed.error().wr_id() == 9);
    CHECK(failed.error().queue_pair_number() == pair.right.number().value());
  });
}

TEST_CASE("a polling session can't be nested, and ends with an exception") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  const auto other = extended_queue<plain_fields>(bed);
  REQUIRE(other);
  connected_pair pair =
      connect(must(bed.builder(*queue).access(all_rights).build()), must(bed.right().build()));
  buffer<> target(bed.domain, 8);
  must(pair.left.post_write({.remote = target.remote()}, {.id = 1}));
  take_each(*queue, 1, [&](const auto&) {
    const error e = failure_of(queue->poll_each([](const auto&) {}));
    CHECK(e == error_kind::busy);
    CHECK_THAT(e.message(), Catch::Contains("sessions don't nest"));
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

TEST_CASE("polling a queue from within its own polling session is an assertion") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.builder(*queue).access(all_rights).build()), must(bed.right().build()));
  buffer<> target(bed.domain, 8);
  must(pair.left.post_write({.id = 1, .remote = target.remote()}));
  std::vector<work_completion> slots(1);
  take_each(*queue, 1, [&](const auto&) {
    CHECK(must(bed.right_queue.poll(slots)).empty());
    CHECK_THAT(assertion_in([&] { static_cast<void>(queue->poll(slots)); }),
               Catch::Contains("poll from within the function that poll_each"));
  });
  CHECK(must(queue->poll(slots)).empty());
}

TEST_CASE("completions have timestamps that don't go back") {
  const testbed bed;
  const auto queue = extended_queue<timed_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.builder(*queue).access(all_rights).build()), must(bed.right().build()));
  CHECK(must(bed.context.device_clock_khz()) > 0);
  buffer<> target(bed.domain, 8);
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

TEST_CASE("an extended completion queue can be polled like any other") {
  const testbed bed;
  const auto queue = extended_queue<plain_fields>(bed);
  if (!queue) return;
  connected_pair pair =
      connect(must(bed.builder(*queue).access(all_rights).build()), must(bed.right().build()));
  buffer<> target(bed.domain, 8);
  must(pair.left.post_write({.remote = target.remote()}, {.id = 1}));
  take_success(*queue, 1);
}

TEST_CASE("the capacity of an extended completion queue is checked as of any other") {
  const testbed bed;
  const auto refused = [&](std::size_t capacity) {
    return failure_of(extended_completion_queue<plain_fields>::create(bed.context, capacity));
  };
  CHECK(refused(0) == error_kind::invalid_input);
  CHECK(refused(static_cast<std::size_t>(bed.limits.max_cqe) + 1) == error_kind::invalid_input);
}
