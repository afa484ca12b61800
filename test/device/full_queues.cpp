// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Posts until the queue is full, and returns the number of requests that were posted.
///
/// This number must be at least the granted capacity, and at most the larger of that and the
/// capacity that a query returns. The two differ with rxe, which reports the requested capacity as
/// granted.
template <class Post>
std::uint64_t fill(Post post, std::uint64_t granted, std::uint64_t queried) {
  const std::uint64_t most = std::max(granted, queried);
  std::uint64_t taken = 0;
  for (;; ++taken) {
    const result<void> outcome = post(taken);
    if (outcome.has_value()) {
      if (taken < most) continue;
      FAIL("a queue with " << most << " places accepted more requests");
    }
    const error& e = outcome.error();
    INFO(e);
    CHECK(e == error_kind::would_block);
    CHECK(e == std::errc::operation_would_block);
    CHECK(e.native_errno() != 0);
    REQUIRE(e.hint() != nullptr);
    CHECK_THAT(e.hint(), Catch::Contains("full"));
    break;
  }
  CHECK(taken >= granted);
  return taken;
}

}  // namespace

TEST_CASE("posting to a full send queue would block and all accepted requests complete") {
  const testbed bed;
  constexpr std::uint32_t asked = 24;
  connected_pair pair = connect(must(bed.left().max_send_work_requests(asked).build()),
                                must(bed.right().max_receive_work_requests(4 * asked).build()));
  connected& left = pair.left;  // clang 14 cannot capture structured bindings
  connected& right = pair.right;
  buffer<> outbox(bed.domain, pattern(256, 50));
  // The peer has posted no receives, so nothing completes. Only the last requests are signaled.
  const std::uint64_t granted = left.capacities().max_send_work_requests;
  const std::uint64_t queried = query(left.native_handle()).initial.cap.max_send_wr;
  const std::uint64_t count = fill(
      [&](std::uint64_t id) {
        return left.post_send({.elements = outbox.gather(id % 256, 1)},
                              {.id = id, .signaled = id + 1 >= std::min(granted, queried)});
      },
      granted, queried);
  CHECK(failure_of(left.post_write({.elements = outbox.gather(), .remote = outbox.remote()})) ==
        error_kind::would_block);
  CHECK(failure_of(left.post_read({.elements = outbox.scatter(), .remote = outbox.remote()})) ==
        error_kind::would_block);
  // The receive queue is not affected.
  buffer<> inbox(bed.domain, 256);
  must(left.post_receive({.elements = inbox.scatter()}, {.id = 1}));

  for (std::uint64_t id = 0; id < count; ++id) {
    must(right.post_receive({.elements = inbox.scatter(id % 256, 1)}, {.id = id}));
    CHECK(take_success(bed.right_queue, id).byte_count() == 1U);
    CHECK(inbox.bytes()[id % 256] == outbox.bytes()[id % 256]);
  }
  // The completions of the signaled requests free all places in the queue.
  const std::uint64_t signaled = count - std::min(granted, queried) + 1;
  CHECK(take(bed.left_queue, signaled).back().wr_id() == count - 1);
  for (std::uint64_t id = 0; id < granted; ++id) {
    must(right.post_receive({.elements = inbox.scatter()}, {.id = id}));
    must(left.post_send({}, {.id = id}));
  }
  for (std::uint64_t id = 0; id < granted; ++id) {
    take_success(bed.left_queue, id);
    take_success(bed.right_queue, id);
  }
}

TEST_CASE("posting to a full receive queue would block and all accepted requests complete") {
  const testbed bed;
  constexpr std::uint32_t asked = 24;
  prepared first = must(bed.left().build());
  prepared second = must(bed.right().max_receive_work_requests(asked).build());
  buffer<> inbox(bed.domain, 1024);
  const std::uint64_t count = fill(
      [&](std::uint64_t id) {
        return second.post_receive({.elements = inbox.scatter(id % 1024, 1)}, {.id = id});
      },
      second.capacities().max_receive_work_requests,
      query(second.native_handle()).initial.cap.max_recv_wr);

  auto [left, right] = connect(std::move(first), std::move(second));
  CHECK(failure_of(right.post_receive({}, {.id = 1})) == error_kind::would_block);
  buffer<> outbox(bed.domain, pattern(1024, 51));
  for (std::uint64_t id = 0; id < count; ++id) {
    must(left.post_send({.elements = outbox.gather(id % 1024, 1)}, {.id = id}));
    take_success(bed.left_queue, id);
    CHECK(take_success(bed.right_queue, id).byte_count() == 1U);
    CHECK(inbox.bytes()[id % 1024] == outbox.bytes()[id % 1024]);
    // The first polled completion has freed one place.
    if (id == 0) must(right.post_receive({.elements = inbox.scatter()}, {.id = count}));
  }
}

TEST_CASE("a place in the send queue is free when the request's completion has been polled") {
  const testbed bed;
  auto [left, right] =
      connect(must(bed.left().max_send_work_requests(4).build()), must(bed.right().build()));
  buffer<> memory(bed.domain, 32);
  const std::uint64_t rounds = 5 * left.capacities().max_send_work_requests;
  for (std::uint64_t id = 0; id < rounds; ++id) {
    must(left.post_write(
        {.elements = memory.gather(0, 16), .remote = must(memory.remote().slice(16, 16))},
        {.id = id}));
    take_success(bed.left_queue, id);
  }
}

TEST_CASE("places of unsignaled requests are freed by the completion of a later signaled request") {
  const testbed bed;
  auto [left, right] =
      connect(must(bed.left().max_send_work_requests(8).build()), must(bed.right().build()));
  buffer<> memory(bed.domain, 32);
  const std::uint64_t every = left.capacities().max_send_work_requests;
  for (std::uint64_t id = 1; id <= 6 * every; ++id) {
    must(left.post_write(
        {.elements = memory.gather(0, 16), .remote = must(memory.remote().slice(16, 16))},
        {.id = id, .signaled = id % every == 0}));
    if (id % every == 0) take_success(bed.left_queue, id);
  }
}

TEST_CASE("too many elements are refused with their number and the limit") {
  const testbed bed;
  auto [left, right] =
      connect(must(bed.left().max_send_elements(2).max_receive_elements(2).build()),
              must(bed.right().build()));
  buffer<> memory(bed.domain, 4096);
  const std::size_t sends = left.capacities().max_send_elements;
  const std::size_t receives = left.capacities().max_receive_elements;
  const std::vector<gather_element> from(sends + 1, memory.gather(0, 8));
  const std::vector<scatter_element> into(receives + 1, memory.scatter(0, 8));
  const std::vector<scatter_element> into_by_read(sends + 1, memory.scatter(0, 8));

  const auto check = [](const error& e, std::size_t limit) {
    INFO(e);
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains(std::to_string(limit + 1)) &&
                                Catch::Contains(std::to_string(limit)) &&
                                Catch::Contains("elements"));
  };
  check(failure_of(left.post_send({.elements = from})), sends);
  check(failure_of(left.post_write({.elements = from, .remote = memory.remote()})), sends);
  check(failure_of(left.post_read({.elements = into_by_read, .remote = memory.remote()})), sends);
  check(failure_of(left.post_receive({.elements = into})), receives);

  // The refused requests were not posted.
  must(left.post_write({.elements = memory.gather(0, 8), .remote = memory.remote()}, {.id = 5}));
  take_success(bed.left_queue, 5);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}
