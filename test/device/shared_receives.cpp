// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <string>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A shared receive queue, if the device has them.
std::optional<shared_receive_queue> shared_queue(const testbed& bed, work_request_count length) {
  auto queue = shared_receive_queue::create(bed.domain, length);
  if (queue.has_value()) return std::move(queue).assume_value();
  INFO(queue.error());
  REQUIRE(queue.error() == error_kind::not_supported);
  WARN("this device has no shared receive queues");
  return std::nullopt;
}

}  // namespace

TEST_CASE("queue pairs take receives from the queue that they share") {
  const testbed bed;
  const auto shared = shared_queue(bed, 8);
  if (!shared) return;
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
  must(shared->post_receive({.id = 1, .elements = inbox.scatter(0, 32)}));
  must(shared->post_receive_batch<2>(
      [&](auto& batch) { batch.receive({.id = 2, .elements = inbox.scatter(32, 32)}); }));
  buffer<> outbox(bed.domain, pattern(64, 3));
  must(to_second.post_send({.id = 3, .elements = outbox.gather(0, 32)}));
  take_success(bed.left_queue, 3);
  const work_completion oldest = take_one(bed.right_queue);
  CHECK(oldest.is_success());
  CHECK(oldest.wr_id() == 1);
  CHECK(oldest.queue_pair_number() == second.number().value());
  must(to_first.post_send({.id = 4, .elements = outbox.gather(32, 32)}));
  take_success(bed.left_queue, 4);
  const work_completion next = take_one(bed.right_queue);
  CHECK(next.wr_id() == 2);
  CHECK(next.queue_pair_number() == first.number().value());
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("a shared receive queue that is full would block") {
  const testbed bed;
  const auto shared = shared_queue(bed, 2);
  if (!shared) return;
  buffer<> inbox(bed.domain, 8);
  const std::uint32_t room = shared->capacities().max_work_requests;
  std::optional<error> refused;
  std::uint32_t posted = 0;
  // Some drivers round the room up and say the number that was asked for.
  for (; posted < 4 * room + 16 && !refused; ++posted) {
    const auto outcome = shared->post_receive({.id = posted, .elements = inbox.scatter()});
    if (outcome.has_error()) refused = outcome.error();
  }
  REQUIRE(refused);
  INFO(*refused);
  CHECK(posted > room);
  CHECK(*refused == error_kind::would_block);
}

TEST_CASE("a shared receive queue tells its limit") {
  const testbed bed;
  const auto shared = shared_queue(bed, 8);
  if (!shared) return;
  CHECK(must(shared->query()).limit == 0);
  must(shared->arm_limit(4));
  CHECK(must(shared->query()).limit == 4);
  must(shared->arm_limit(0));
  CHECK(must(shared->query()).limit == 0);
  const error e = failure_of(shared->arm_limit(shared->capacities().max_work_requests + 1));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("ibv_modify_srq"));
}

TEST_CASE("a shared receive queue lives as long as a queue pair uses it") {
  const testbed bed;
  auto shared = shared_queue(bed, 2);
  if (!shared) return;
  auto queue_pair = must(bed.left().shared_receive_queue(*shared).build());
  shared.reset();
  buffer<> inbox(bed.domain, 8);
  must(queue_pair.shared_receive_queue().post_receive({.id = 1, .elements = inbox.scatter()}));
}

TEST_CASE(
    "sizes of a shared receive queue that the device cannot have are refused before it is asked") {
  const testbed bed;
  if (bed.limits.max_srq <= 0) return;
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
  if (!shared) return;
  const error e = failure_of(bed.left().shared_receive_queue(*shared).build());
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("protection domain"));
}
