// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tests failures of libibverbs calls that post, poll or wait, and of the query of the device's
/// clock.

#include "datagrams.hpp"
#include "failing_calls.hpp"

#include <array>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr auto returns_errno = convention::returns_errno;
constexpr auto minus_one = convention::minus_one;

/// Returns the errno values with which these tests make a post fail. Several of them mean that the
/// queue is full.
[[nodiscard]] std::vector<expected_failure> failures_of_posts() {
  return any_failures_but({{ENOMEM, error_kind::would_block},
                           {EAGAIN, error_kind::would_block},
                           {ENOBUFS, error_kind::would_block},
                           {ENOSPC, error_kind::would_block},
                           {EOVERFLOW, error_kind::would_block}});
}

[[nodiscard]] failing_call post(const char* operation) {
  return {.verb = operation, .failures = failures_of_posts()};
}
/// Describes a call that is not repeated without the failure, because its request could fail, or
/// would affect the rest of the test.
[[nodiscard]] failing_call post_once(const char* operation) {
  failing_call call = post(operation);
  call.can_be_repeated = false;
  return call;
}

/// Checks that a wait reports the failure, and that another wait succeeds afterwards.
template <class Wait, class... Pointer>
void check_failing_wait(failing_call call, convention own, Wait wait, Pointer&... pointer) {
  call.can_be_repeated = false;
  check_failing(call, own, pointer..., [&] { return wait(clock::now() + patience); });
  must(wait(clock::now() + std::chrono::milliseconds(20)));
}

constexpr auto fields = completion_feature::byte_count | completion_feature::queue_pair_number;
using extended_queue = extended_completion_queue<fields>;

/// The value that the replaced `wr_complete` returns. The replacement aborts the batch first,
/// because the queue pair would otherwise stay locked.
int completion_of_batch = 0;
int give_up_batch(ibv_qp_ex* queue_pair) {
  ibv_wr_abort(queue_pair);
  return completion_of_batch;
}

}  // namespace

TEST_CASE_METHOD(two_queue_pairs,
                 "a failure to post a request is reported and the next request can be posted") {
  connected& left = pair.left;
  buffer<> memory(bed.domain, 64);
  const auto part = memory.gather(0, 8);
  const auto into = memory.scatter(8, 8);
  const auto remote = must(memory.remote().slice(32, 32));
  auto& post_send = left.native_handle()->context->ops.post_send;
  check_failing(post("ibv_post_send (send)"), returns_errno, post_send,
                [&] { return left.post_send({.elements = part}, {.signaled = false}); });
  check_failing(post("ibv_post_send (RDMA write)"), returns_errno, post_send, [&] {
    return left.post_write({.elements = part, .remote = remote}, {.signaled = false});
  });
  check_failing(post("ibv_post_send (RDMA read)"), returns_errno, post_send, [&] {
    return left.post_read({.elements = into, .remote = remote}, {.signaled = false});
  });
  const remote_memory<access::remote_atomic> far(remote.address(), 8, remote.rkey());
  const remote_word word = must(remote_word::at(far, 0));
  check_failing(post_once("ibv_post_send (compare and swap)"), returns_errno, post_send,
                [&] { return left.post_compare_and_swap({.result = into, .remote = word}); });
  check_failing(post_once("ibv_post_send (fetch and add)"), returns_errno, post_send,
                [&] { return left.post_fetch_and_add({.result = into, .remote = word}); });
  check_failing(post_once("ibv_post_send (send with invalidate)"), returns_errno, post_send,
                [&] { return left.post_send_with_invalidate({.rkey = remote_key(1U)}); });
  check_failing(post_once("ibv_post_send (local invalidate)"), returns_errno, post_send,
                [&] { return left.post_local_invalidate({.rkey = remote_key(1U)}); });
  check_failing(post("ibv_post_send (batch)"), returns_errno, post_send, [&] {
    return left.post_batch<2>([&](auto& batch) {
      batch.post_write({.elements = part, .remote = remote}, {.signaled = false});
      batch.post_write({.elements = part, .remote = remote}, {.id = 7});
    });
  });
  // Only the requests whose calls succeeded have been posted.
  must(pair.right.post_receive({.elements = memory.scatter(16, 8)}, {.id = 8}));
  take_success(bed.left_queue, 7);
  take_success(bed.right_queue, 8);
  CHECK(count_within_a_moment(bed.left_queue) == 0);

  auto datagrams = left_of(bed);
  const address_handle way = must(datagrams.address_of(datagrams.endpoint()));
  const auto to = way.destination(datagrams.number(), test_key);
  check_failing(post("ibv_post_send (datagram)"), returns_errno,
                datagrams.native_handle()->context->ops.post_send, [&] {
                  return datagrams.post_send({.elements = part, .to = to}, {.signaled = false});
                });
}

TEST_CASE("a failure to bind a memory window is reported and leaves the window unchanged") {
  const testbed bed;
  auto window = supported(memory_window<memory_window_type::type_1>::create(bed.domain),
                          "memory windows of type 1");
  connected_pair pair = connect(bed);
  buffer<access::local_write | access::window_bind> memory(bed.domain, 64);
  const auto part = must(memory.region().window_part<access::remote_read>(0, 64));
  const remote_key before = window.rkey();
  check_failing(post_once("ibv_bind_mw"), returns_errno,
                pair.left.native_handle()->context->ops.bind_mw,
                [&] { return pair.left.post_bind(window, part, {.id = 1}); });
  CHECK(window.rkey() == before);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("a failure to post a receive is reported and the next receive can be posted") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  buffer<> memory(bed.domain, 8);
  const auto into = memory.scatter();
  auto& pointers = pair.native_handle()->context->ops;
  check_failing(post("ibv_post_recv"), returns_errno, pointers.post_recv,
                [&] { return pair.post_receive({.elements = into}, {.id = 1}); });
  check_failing(post("ibv_post_recv"), returns_errno, pointers.post_recv, [&] {
    return pair.post_receive_batch<2>([&](auto& batch) {
      batch.post_receive({.elements = into}, {.id = 2});
      batch.post_receive({.elements = into}, {.id = 3});
    });
  });
  move_to_error(pair.native_handle());
  for (const std::uint64_t id : {1U, 2U, 3U}) CHECK(take_one(bed.left_queue).wr_id() == id);
  CHECK(count_within_a_moment(bed.left_queue) == 0);

  if (bed.limits.max_srq <= 0) SKIP("the device has no shared receive queues");
  const auto shared = must(shared_receive_queue::create(bed.domain, 8));
  check_failing(post("ibv_post_srq_recv"), returns_errno, pointers.post_srq_recv,
                [&] { return shared.post_receive({.elements = into}); });
  check_failing(post("ibv_post_srq_recv"), returns_errno, pointers.post_srq_recv, [&] {
    return shared.post_receive_batch<1>(
        [&](auto& batch) { batch.post_receive({.elements = into}); });
  });
}

TEST_CASE("a failure to post an extended batch is reported and the next batch can be posted") {
  const testbed bed;
  auto left = connect_to_itself(supported(bed.left().extended_posting().build(), extended_posting));
  buffer<> target(bed.domain, 8);
  auto& pointer = ibv_qp_to_qp_ex(left.native_handle())->wr_complete;
  const auto fill = [&](auto& batch) { batch.post_write({.remote = target.remote()}, {.id = 1}); };
  for (const expected_failure& each : failures_of_posts())
    for (const int returned : {each.errnum, -each.errnum, -1}) {
      CAPTURE(each.errnum, returned);
      // -EPERM is -1, which means that the code is in errno.
      if (returned == -EPERM && each.errnum == EPERM) continue;
      completion_of_batch = returned;
      const auto before = std::exchange(pointer, give_up_batch);
      errno = each.errnum;
      const auto outcome = left.post_batch<1>(fill);
      pointer = before;
      const batch_error e = failure_of(outcome);
      CHECK(e.accepted() == 0);
      check_told(e.cause(), each, "ibv_wr_complete");
    }
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  must(left.post_batch<1>(fill));
  take_success(bed.left_queue, 1);
}

namespace {

/// Returns the failures that a polling call can report. EBUSY becomes the error `busy`, because the
/// caller may be inside another polling session on the same queue.
std::vector<expected_failure> poll_failures() {
  std::vector<expected_failure> failures = any_failures_of(error_kind::driver);
  for (expected_failure& each : failures)
    if (each.errnum == EBUSY) each.kind = error_kind::busy;
  return failures;
}

}  // namespace

TEST_CASE("a failed poll returns an error and not an empty range") {
  const testbed bed;
  std::array<work_completion, 4> slots;
  auto& pointer = bed.left_queue.native_handle()->context->ops.poll_cq;
  const auto poll = [&] { return bed.left_queue.poll(slots); };
  std::vector<expected_failure> failures = poll_failures();
  // Some drivers return -1 and -2 as error codes that are not errno values.
  std::erase_if(failures, [](const expected_failure& each) { return each.errnum <= 2; });
  const failing_call call{.verb = "ibv_poll_cq", .failures = failures};
  check_failing(call, convention::negative_errno, pointer, poll);
  for (const int code : {1, 2}) {
    const failing_operation fails(pointer, code, convention::negative_errno);
    const error e = failure_of(poll());
    CHECK(e == error_kind::driver);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::StartsWith("ibv_poll_cq: ") && Catch::Contains("overran"));
  }
  {
    const failing_operation fails(pointer, EBUSY, convention::negative_errno);
    CHECK_THAT(failure_of(poll()).message(), Catch::Contains("do not poll in the function"));
  }
  const auto waitable = must(waitable_completion_queue::create(bed.context, 4));
  check_failing_wait(
      call, convention::negative_errno, [&](auto limit) { return waitable.wait(slots, limit); },
      pointer);
}

TEST_CASE("a polling session that cannot start or continue returns an error") {
  const testbed bed;
  const auto queue = supported(extended_queue::create(bed.context, 64),
                               "extended completion queues with these fields");
  connected_pair pair =
      connect(must(bed.builder(queue).access(all_rights).build()), must(bed.right().build()));
  connected& left = pair.left;
  buffer<> target(bed.domain, 8);
  std::vector<expected_failure> failures = poll_failures();
  // ENOENT is not a failure: it means that there are no more completions.
  std::erase_if(failures, [](const expected_failure& each) { return each.errnum == ENOENT; });
  auto& pointers = *reinterpret_cast<ibv_cq_ex*>(queue.native_handle());
  std::vector<std::uint64_t> seen;
  const auto note = [&](const auto& completion) { seen.push_back(completion.wr_id()); };

  std::uint64_t id = 0;
  must(left.post_write({.remote = target.remote()}, {.id = ++id}));
  check_failing({.verb = "ibv_start_poll", .failures = failures}, returns_errno,
                pointers.start_poll, [&] { return queue.poll_each(note); });
  wait_until([&] { return !seen.empty() || must(queue.poll_each(note)) != 0; }, "a completion");
  CHECK(seen == std::vector<std::uint64_t>{1});

  // The library ends the polling session even after a failure. Ending it may change errno, and the
  // new value must not be reported.
  static void (*end_poll)(ibv_cq_ex*) = nullptr;
  end_poll = std::exchange(pointers.end_poll, [](ibv_cq_ex* polled) {
    end_poll(polled);
    errno = EXDEV;
  });
  // The failure occurs after the first completion has already been visited.
  check_failing({.verb = "ibv_next_poll", .failures = failures}, returns_errno, pointers.next_poll,
                [&]() -> result<std::size_t> {
                  seen.clear();
                  must(left.post_write({.remote = target.remote()}, {.id = ++id}));
                  for (const auto deadline = clock::now() + patience; clock::now() < deadline;) {
                    VERBSPP_TRY(count, queue.poll_each(note));
                    if (count != 0) return count;
                  }
                  throw failure(__FILE__, __LINE__, "no completion arrived");
                });
  CHECK(seen == std::vector<std::uint64_t>{id});
  CHECK(must(queue.poll_each(note)) == 0);
}

TEST_CASE("a failure to query the device's clock is reported with its cause") {
  const testbed bed;
  auto& pointer = verbs_get_ctx(bed.context.native_handle())->query_device_ex;
  if (pointer == nullptr) SKIP("the device has no extended query");
  std::vector<expected_failure> failures = any_failures;
  // If the extended query fails with EOPNOTSUPP, libibverbs falls back to the plain query, which
  // does not report the clock.
  std::erase_if(failures, [](const expected_failure& each) { return each.errnum == EOPNOTSUPP; });
  const auto ask = [&] { return bed.context.device_clock_khz(); };
  check_failing(
      {.verb = "ibv_query_device_ex", .failures = failures, .can_be_repeated = ask().has_value()},
      returns_errno, pointer, ask);
  const failing_operation fails(pointer, EOPNOTSUPP, returns_errno);
  CHECK(failure_of(ask()) == error_kind::not_supported);
}

TEST_CASE("a failure to request a notification is reported with its cause") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  auto& pointer = queue.native_handle()->context->ops.req_notify_cq;
  std::array<work_completion, 1> slots;
  check_failing({"ibv_req_notify_cq"}, returns_errno, pointer,
                [&] { return queue.request_notification(); });
  check_failing_wait(
      {"ibv_req_notify_cq"}, returns_errno, [&](auto limit) { return queue.wait(slots, limit); },
      pointer);
}

TEST_CASE("a failure to read events ends a wait for them with its cause") {
  const testbed bed;
  const auto queue = must(waitable_completion_queue::create(bed.context, 4));
  const completion_channel channel = queue.completion_channel();
  std::array<work_completion, 1> slots;
  const failing_call of_completions{.verb = "ibv_get_cq_event",
                                    .ways = {minus_one, convention::minus_one_alone}};
  check_failing(of_completions, minus_one, [&] { return channel.poll(); });
  check_failing_wait(of_completions, minus_one, [&](auto limit) { return channel.wait(limit); });
  check_failing_wait(of_completions, minus_one,
                     [&](auto limit) { return queue.wait(slots, limit); });
  const failing_call of_the_device{.verb = "ibv_get_async_event",
                                   .ways = {minus_one, convention::minus_one_alone}};
  check_failing(of_the_device, minus_one, [&] { return bed.context.poll_async_event(); });
  check_failing_wait(of_the_device, minus_one,
                     [&](auto limit) { return bed.context.wait_async_event(limit); });
  const failing_verb gone("ibv_get_async_event", EIO);
  CHECK_THAT(failure_of(bed.context.poll_async_event()).message(),
             Catch::Contains("device no longer exists"));
}
