// SPDX-License-Identifier: Apache-2.0
#include "../assertions.hpp"
#include "device.hpp"
#include "failing_verb.hpp"
#include "memory_lock_limit.hpp"

#include <climits>
#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE("a completion queue with a capacity of zero is refused") {
  const testbed bed;
  const error e = failure_of(completion_queue::create(bed.context, 0));
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(), Catch::Contains("capacity"));
}

TEST_CASE(
    "a completion queue above the device's limit is refused and the error gives both numbers") {
  const testbed bed;
  const auto limit = static_cast<std::size_t>(bed.limits.max_cqe);
  for (const std::size_t capacity :
       {limit + 1, std::size_t{INT_MAX} + 1, std::size_t{1} << 32, SIZE_MAX}) {
    const error e = failure_of(completion_queue::create(bed.context, capacity));
    INFO(e);
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(),
               Catch::Contains(std::to_string(capacity)) && Catch::Contains(std::to_string(limit)));
  }
}

TEST_CASE("a completion queue has at least the requested capacity") {
  const testbed bed;
  for (const std::size_t capacity : {1U, 2U, 3U, 16U, 100U, 1000U}) {
    const completion_queue queue = must(completion_queue::create(bed.context, capacity));
    CHECK(queue.capacity() >= capacity);
    CHECK(queue.context() == bed.context);
    CHECK(static_cast<std::size_t>(queue.native_handle()->cqe) == queue.capacity());
  }
}

TEST_CASE("polling an empty queue returns an empty range") {
  const testbed bed;
  std::vector<work_completion> slots(4);
  CHECK(must(bed.left_queue.poll(slots)).empty());
}

TEST_CASE("polling returns completions in order and no more than there are slots") {
  const testbed bed;
  buffer<> memory(bed.domain, 64);
  auto [left, right] = connect(bed);
  constexpr std::uint64_t count = 5;
  for (std::uint64_t id = 0; id < count; ++id)
    must(right.post_receive({.elements = memory.scatter()}, {.id = id}));
  for (std::uint64_t id = 0; id < count; ++id) must(left.post_send({}, {.id = id}));
  for (const work_completion& each : take(bed.left_queue, count)) CHECK(each.is_success());

  // A poll without slots is refused and removes no completion, whether or not any have arrived.
  CHECK(failure_of(bed.right_queue.poll({})) == error_kind::invalid_input);
  std::vector<work_completion> slots(2);
  std::uint64_t next = 0;
  const auto deadline = clock::now() + patience;
  while (next < count && clock::now() < deadline) {
    const auto arrived = must(bed.right_queue.poll(slots));
    REQUIRE(arrived.size() <= slots.size());
    if (!arrived.empty()) CHECK(arrived.data() == slots.data());
    for (const work_completion& each : arrived) CHECK(each.wr_id() == next++);
  }
  CHECK(next == count);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

TEST_CASE("copies of a completion queue are the same queue") {
  const testbed bed;
  const completion_queue copy = bed.left_queue;
  CHECK(copy == bed.left_queue);
  CHECK(copy != bed.right_queue);
  CHECK(copy.native_handle() == bed.left_queue.native_handle());
}

TEST_CASE("sends and receives complete in their own completion queues") {
  const testbed bed;
  const prepared alone = must(build_queue_pair<transport::rc>()
                                  .protection_domain(bed.domain)
                                  .send_completion_queue(bed.left_queue)
                                  .receive_completion_queue(bed.right_queue)
                                  .access(access::local_write)
                                  .build());
  CHECK(alone.send_completion_queue() == bed.left_queue);
  CHECK(alone.receive_completion_queue() == bed.right_queue);
  CHECK(alone.protection_domain() == bed.domain);

  buffer<> memory(bed.domain, 16);
  prepared other = must(build_queue_pair<transport::rc>()
                            .protection_domain(bed.domain)
                            .send_completion_queue(bed.left_queue)
                            .receive_completion_queue(bed.right_queue)
                            .access(access::local_write)
                            .build());
  connected pair = connect_to_itself(std::move(other));
  must(pair.post_receive({.elements = memory.scatter(0, 8)}, {.id = 1}));
  must(pair.post_send({.elements = memory.gather(8, 8)}, {.id = 2}));
  CHECK(take_success(bed.left_queue, 2).operation() == work_operation::send);
  CHECK(take_success(bed.right_queue, 1).operation() == work_operation::receive);
}

TEST_CASE("polling without a slot for a completion is refused") {
  const testbed bed;
  const error e = failure_of(bed.left_queue.poll({}));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(),
             Catch::Contains("ibv_poll_cq") && Catch::Contains("pass at least one slot"));
  std::vector<work_completion> none;
  CHECK(failure_of(bed.left_queue.poll(none)) == error_kind::invalid_input);
}

// NOLINTBEGIN(bugprone-use-after-move): these tests use handles after they were moved from
TEST_CASE("a moved-from completion queue is empty and its target works") {
  const testbed bed;
  completion_queue queue = must(completion_queue::create(bed.context, 4));
  ibv_cq* const native = queue.native_handle();
  const completion_queue moved = std::move(queue);
  CHECK(moved.native_handle() == native);
  CHECK(queue.native_handle() == nullptr);
  CHECK(queue.capacity() == 0);
  CHECK(queue != moved);
  const completion_queue copy = queue;
  CHECK(copy == queue);
  std::ostringstream text;
  text << queue;
  CHECK(text.str() == "completion queue that was moved from");
  queue = moved;
  CHECK(queue == moved);
  std::vector<work_completion> slots(1);
  CHECK(must(queue.poll(slots)).empty());
}

TEST_CASE("polling a moved-from completion queue fails an assertion") {
  const testbed bed;
  completion_queue queue = must(completion_queue::create(bed.context, 4));
  const completion_queue moved = std::move(queue);
  std::vector<work_completion> slots(1);
  CHECK_THAT(assertion_in([&] { static_cast<void>(queue.poll(slots)); }),
             Catch::Contains("this completion queue was moved from"));
  CHECK_THAT(assertion_in([&] { static_cast<void>(queue.context()); }),
             Catch::Contains("this completion queue was moved from"));
}
// NOLINTEND(bugprone-use-after-move)

TEST_CASE("assigning to a completion queue releases the previous one at once") {
  const testbed bed;
  completion_queue queue = must(completion_queue::create(bed.context, 4));
  const int before = live_objects();
  queue = must(completion_queue::create(bed.context, 4));
  CHECK(live_objects() == before);
  queue = std::move(queue);
  CHECK(queue.capacity() >= 4);
}

TEST_CASE("the context of a temporary completion queue outlives it") {
  const testbed bed;
  const auto& context = must(completion_queue::create(bed.context, 4)).context();
  static_assert(!std::is_reference_v<decltype(std::declval<completion_queue>().context())>);
  CHECK(context == bed.context);
}

namespace {

/// Makes the creation of each kind of queue fail as if the driver had run out of memory. Returns
/// the error messages.
std::vector<std::string> told_without_memory(const testbed& bed) {
  std::vector<std::string> told;
  const auto tell = [&](const char* verb, auto create) {
    const failing_verb fails(verb, ENOMEM);
    const error e = failure_of(create());
    CHECK(e == error_kind::resource_exhausted);
    CHECK(e.native_errno() == ENOMEM);
    CHECK_THAT(e.message(), Catch::Contains(verb));
    told.push_back(e.message());
  };
  tell("ibv_create_cq", [&] { return completion_queue::create(bed.context, 4); });
  tell("ibv_create_srq", [&] { return shared_receive_queue::create(bed.domain, 4, 1); });
  tell("ibv_create_qp", [&] { return bed.left().build(); });
  return told;
}

}  // namespace

TEST_CASE(
    "the error for a queue that cannot get memory advises to raise the limit on locked memory") {
  const testbed bed;
  const memory_lock_limit small(65536);
  if (!small.changed) SKIP("this process may not change its limit on locked memory");
  for (const std::string& told : told_without_memory(bed))
    CHECK_THAT(told, Catch::Contains("ulimit -l") && Catch::Contains("fewer"));
}

TEST_CASE("the error for a queue that cannot get memory says if locked memory is unlimited") {
  const testbed bed;
  const memory_lock_limit none(RLIM_INFINITY);
  if (!none.changed) SKIP("this process may not raise its limit on locked memory");
  for (const std::string& told : told_without_memory(bed))
    CHECK_THAT(told, Catch::Contains("RLIMIT_MEMLOCK is unlimited") && !Catch::Contains("ulimit"));
}
