// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"

#include <poll.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Creates a shared receive queue. Skips the test if the device has none.
std::optional<shared_receive_queue> shared_queue(const testbed& bed, work_request_count length) {
  return supported(shared_receive_queue::create(bed.domain, length), shared_receive_queues);
}

/// Makes the number of receives in the queue fall below its limit, which raises an event. \returns
/// the queue pair that has consumed the receive
auto reach_limit_of(const testbed& bed, shared_receive_queue& shared) {
  auto pair = connect_to_itself(must(bed.left().shared_receive_queue(shared).build()));
  buffer<> inbox(bed.domain, 8);
  must(shared.post_receive({.elements = inbox.scatter()}));
  must(shared.arm_limit(1));
  must(pair.post_send({}));
  static_cast<void>(take(bed.left_queue, 2));
  return pair;
}

}  // namespace

TEST_CASE("several queue pairs take receives from a queue that they share") {
  const testbed bed;
  const auto shared = shared_queue(bed, 8);
  CHECK(shared->capacities().max_work_requests >= 8);
  CHECK(shared->capacities().max_elements >= 1);
  const auto builder = bed.right().shared_receive_queue(*shared);
  auto first_end = must(builder.build());
  auto second_end = must(builder.build());
  CHECK(first_end.shared_receive_queue() == *shared);
  prepared first_peer = must(bed.left().build());
  prepared second_peer = must(bed.left().build());
  const endpoint first_address = first_end.endpoint();
  const endpoint second_address = second_end.endpoint();
  const auto first = must(std::move(first_end).handshake(first_peer.endpoint()));
  const auto second = must(std::move(second_end).handshake(second_peer.endpoint()));
  connected to_first = must(std::move(first_peer).handshake(first_address));
  connected to_second = must(std::move(second_peer).handshake(second_address));

  buffer<> inbox(bed.domain, 64);
  must(shared->post_receive({.elements = inbox.scatter(0, 32)}, {.id = 1}));
  must(shared->post_receive_batch<2>(
      [&](auto& batch) { batch.post_receive({.elements = inbox.scatter(32, 32)}, {.id = 2}); }));
  buffer<> outbox(bed.domain, pattern(64, 3));
  must(to_second.post_send({.elements = outbox.gather(0, 32)}, {.id = 3}));
  take_success(bed.left_queue, 3);
  const work_completion oldest = take_one(bed.right_queue);
  CHECK(oldest.is_success());
  CHECK(oldest.wr_id() == 1);
  CHECK(oldest.queue_pair_number() == second.number());
  must(to_first.post_send({.elements = outbox.gather(32, 32)}, {.id = 4}));
  take_success(bed.left_queue, 4);
  const work_completion next = take_one(bed.right_queue);
  CHECK(next.wr_id() == 2);
  CHECK(next.queue_pair_number() == first.number());
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("posting to a full shared receive queue returns would_block") {
  const testbed bed;
  const auto shared = shared_queue(bed, 2);
  buffer<> inbox(bed.domain, 8);
  const std::uint32_t room = shared->capacities().max_work_requests;
  std::optional<error> refused;
  std::uint32_t posted = 0;
  // Some drivers round the capacity up but report the number that was requested.
  for (; posted < 4 * room + 16 && !refused; ++posted) {
    const auto outcome = shared->post_receive({.elements = inbox.scatter()}, {.id = posted});
    if (outcome.has_error()) refused = outcome.error();
  }
  REQUIRE(refused);
  INFO(*refused);
  CHECK(posted > room);
  CHECK(*refused == error_kind::would_block);
}

TEST_CASE("a shared receive queue returns the limit that was set") {
  const testbed bed;
  const auto shared = shared_queue(bed, 8);
  CHECK(must(shared->query()).limit == 0);
  must(shared->arm_limit(4));
  CHECK(must(shared->query()).limit == 4);
  must(shared->arm_limit(0));
  CHECK(must(shared->query()).limit == 0);
  const error e = failure_of(shared->arm_limit(shared->capacities().max_work_requests + 1));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("ibv_modify_srq"));
}

TEST_CASE("a shared receive queue exists as long as a queue pair uses it") {
  const testbed bed;
  auto shared = shared_queue(bed, 2);
  auto queue_pair = must(bed.left().shared_receive_queue(*shared).build());
  shared.reset();
  buffer<> inbox(bed.domain, 8);
  must(queue_pair.shared_receive_queue().post_receive({.elements = inbox.scatter()}, {.id = 1}));
}

TEST_CASE("unsupported sizes of a shared receive queue are refused before the device is called") {
  const testbed bed;
  if (bed.limits.max_srq <= 0) SKIP("the device has no shared receive queues");
  const auto refused = [&](work_request_count length, element_count elements) {
    const error e = failure_of(shared_receive_queue::create(bed.domain, length, elements));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    return e.message();
  };
  CHECK_THAT(refused(0, 1), Catch::Contains("the smallest queue holds 1"));
  CHECK_THAT(refused(must(work_request_count::from(bed.limits.max_srq_wr + 1)), 1),
             Catch::Contains("max work requests"));
  CHECK_THAT(refused(1, must(element_count::from(bed.limits.max_srq_sge + 1))),
             Catch::Contains("max elements"));
}

TEST_CASE("a shared receive queue of another protection domain is refused") {
  const testbed bed;
  const testbed other;
  const auto shared = shared_queue(other, 2);
  const error e = failure_of(bed.left().shared_receive_queue(*shared).build());
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("protection domain"));
}

TEST_CASE("a shared receive queue that falls below its limit reports it once and still works") {
  const testbed bed;
  const auto shared = shared_queue(bed, 16);
  const auto other = shared_queue(bed, 16);
  auto receiver = must(bed.right().shared_receive_queue(*shared).build());
  prepared sender = must(bed.left().build());
  const endpoint address = receiver.endpoint();
  const auto right = must(std::move(receiver).handshake(sender.endpoint()));
  connected left = must(std::move(sender).handshake(address));
  buffer<> inbox(bed.domain, 8);
  std::uint64_t posted = 0;
  std::uint64_t taken = 0;
  const auto post = [&](std::uint64_t count) {
    for (const std::uint64_t end = posted + count; posted < end; ++posted)
      must(shared->post_receive({.elements = inbox.scatter()}, {.id = posted}));
  };
  const auto consume = [&](std::uint64_t count) {
    for (const std::uint64_t end = taken + count; taken < end; ++taken) {
      must(left.post_send({}, {.id = taken}));
      take_success(bed.left_queue, taken);
      take_success(bed.right_queue, taken);
    }
  };
  const auto no_event = [&] { return !must(bed.context.wait_async_event(clock::now() + moment)); };

  post(6);
  consume(1);
  CHECK(no_event());  // no event was requested
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    must(shared->arm_limit(4));
    consume(1);
    CHECK(no_event());  // four receives are not fewer than four
    consume(1);
    const auto event = must(bed.context.wait_async_event(clock::now() + patience));
    REQUIRE(event);
    CHECK(event->type() == async_event_type::shared_receive_queue_limit_reached);
    CHECK(event->element() == async_event_element::shared_receive_queue);
    CHECK(event->severity() == async_event_severity::notice);
    CHECK(event->concerns(*shared));
    CHECK_FALSE(event->concerns(*other));
    CHECK_FALSE(event->concerns(right));
    CHECK_FALSE(event->concerns(bed.right_queue));
    CHECK(must(shared->query()).limit == 0);
    consume(2);
    CHECK(no_event());  // the event is reported only once
    post(4);
  }
  consume(posted - taken);
}

TEST_CASE("an event of a limit does not concern a later queue at the same address") {
  const testbed bed;
  auto shared = shared_queue(bed, 4);
  std::optional<async_event> event;
  {
    const auto pair = reach_limit_of(bed, *shared);
    event = must(bed.context.wait_async_event(clock::now() + patience));
  }
  REQUIRE(event);
  CHECK(event->concerns(*shared));
  shared.reset();
  std::vector<shared_receive_queue> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(shared_queue(bed, 4).value());
    CHECK_FALSE(event->concerns(others.back()));
  }
}

TEST_CASE("a shared receive queue with an unread event of its limit can be destroyed") {
  const testbed bed;
  auto shared = shared_queue(bed, 4);
  {
    const auto pair = reach_limit_of(bed, *shared);
    pollfd readable{bed.context.async_event_file_descriptor(), POLLIN, 0};
    CHECK(::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
  }
  shared.reset();
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

// NOLINTBEGIN(bugprone-use-after-move): this test uses a handle after it was moved from
TEST_CASE("a moved-from shared receive queue is empty and refused") {
  const testbed bed;
  auto shared = shared_queue(bed, 4);
  const shared_receive_queue moved = *std::move(shared);
  CHECK(shared->native_handle() == nullptr);
  CHECK(shared->capacities().max_work_requests == 0);
  CHECK(moved.capacities().max_work_requests >= 4);
  for (const error& e : {failure_of(shared->arm_limit(0)), failure_of(shared->query())}) {
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("this shared receive queue was moved from"));
  }
  std::ostringstream text;
  text << *shared;
  CHECK(text.str() == "shared receive queue that was moved from");
  CHECK_THAT(assertion_in([&] { static_cast<void>(shared->protection_domain()); }),
             Catch::Contains("this shared receive queue was moved from"));
  CHECK(*shared != moved);
  *shared = moved;
  CHECK(*shared == moved);
}
// NOLINTEND(bugprone-use-after-move)
