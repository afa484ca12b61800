// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <optional>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using enum work_status;

/// Checks the class, the queue pair and the status of a failed completion. Devices differ, so the
/// status must be one of `statuses`.
void check_failed(const work_completion& completion, std::uint64_t id, const connected& pair,
                  std::initializer_list<work_status> statuses, work_error_class error_class) {
  REQUIRE_FALSE(completion.is_success());
  const work_error failed = failure_of(completion.get());
  INFO(failed);
  CHECK(is_one_of(failed.status(), statuses));
  CHECK(failed.error_class() == error_class);
  CHECK(failed.wr_id() == id);
  CHECK(completion.wr_id() == id);
  CHECK(failed.queue_pair_number() == pair.number());
  CHECK(std::string(failed.hint()).size() > 10);
}

/// Checks that a queue pair that has failed is in ERR, and that it flushes requests that are posted
/// later.
void check_broken(connected& pair, const completion_queue& queue) {
  wait_for_error_state(pair);
  must(pair.post_send({}, {.id = 901, .signaled = false}));
  check_failed(take_one(queue), 901, pair, {flushed}, work_error_class::flushed);
}

/// Checks that a queue pair whose peer has failed is still in RTS.
void check_whole(const connected& pair) {
  CHECK(must(pair.query_state()) == queue_pair_state::ready_to_send);
}

/// The statuses that a mistake at the local end can cause. Hardware reports a protection error, but
/// rxe reports some mistakes as a queue pair operation error.
constexpr auto local_mistakes = {local_protection_error, local_queue_pair_operation_error};
/// The status that is reported if an access exceeds a region's rights or bounds.
constexpr auto access_refusals = {remote_access_error};
/// The statuses that can be reported if the peer's queue pair does not grant the access. rxe
/// reports an invalid request.
constexpr auto queue_pair_refusals = {remote_access_error, remote_invalid_request_error};

/// Writes to, or reads from, memory that the peer's device refuses to access. Checks the results at
/// both ends.
void check_refused(const testbed& bed, connected_pair& pair, std::uint64_t address,
                   std::uint64_t length, remote_key rkey, bool reads,
                   std::initializer_list<work_status> statuses) {
  auto& [left, right] = pair;
  buffer<> memory(bed.domain, static_cast<std::size_t>(length));
  buffer<> receives(bed.domain, 16);
  must(right.post_receive({.elements = receives.scatter()}, {.id = 11}));
  if (reads)
    must(left.post_read({.elements = memory.scatter(),
                         .remote = remote_memory<access::remote_read>(address, length, rkey)},
                        {.id = 1}));
  else
    must(left.post_write({.elements = memory.gather(),
                          .remote = remote_memory<access::remote_write>(address, length, rkey)},
                         {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, statuses, work_error_class::remote);
  check_broken(left, bed.left_queue);
  // The connection also breaks at the end whose memory was accessed.
  wait_for_error_state(right);
  // rxe reports the cause in the status of the next receive, whereas other devices flush that
  // receive.
  const work_completion receive = take_one(bed.right_queue);
  CHECK(receive.wr_id() == 11);
  CHECK_FALSE(receive.is_success());
}

void check_write_refused(const testbed& bed, const remote_memory<access::remote_write>& far,
                         std::initializer_list<work_status> statuses = access_refusals) {
  connected_pair pair = connect(bed);
  check_refused(bed, pair, far.address(), far.length(), far.rkey(), false, statuses);
}

void check_read_refused(const testbed& bed, const remote_memory<access::remote_read>& far,
                        std::initializer_list<work_status> statuses = access_refusals) {
  connected_pair pair = connect(bed);
  check_refused(bed, pair, far.address(), far.length(), far.rkey(), true, statuses);
}

/// Memory whose registration no longer exists.
struct stale_memory {
  std::vector<std::byte> bytes;
  gather_element from;
  scatter_element into;
  remote_memory<access::remote_read | access::remote_write> far;

  static stale_memory of(const protection_domain& domain, std::size_t size) {
    std::vector<std::byte> bytes(size);
    auto region = must(register_memory<all_rights>(domain, bytes));
    stale_memory stale{std::move(bytes), must(region.gather()), must(region.scatter()),
                       must(region.remote())};
    must(std::move(region).deregister());
    return stale;
  }
};

/// Checks that a send fails if the sending device refuses its memory.
void check_send_refused_here(const testbed& bed, const gather_element& from) {
  auto [left, right] = connect(bed);
  buffer<> inbox(bed.domain, 4096);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 11}));
  must(left.post_send({.elements = from}, {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, local_mistakes,
               work_error_class::local_programming);
  check_broken(left, bed.left_queue);
  check_whole(right);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

/// Checks that a receive fails if the receiving device refuses its memory.
void check_receive_refused_there(const testbed& bed, const scatter_element& into) {
  auto [left, right] = connect(bed);
  buffer<> outbox(bed.domain, 64);
  must(right.post_receive({.elements = into}, {.id = 11}));
  must(left.post_send({.elements = outbox.gather()}, {.id = 1}));
  check_failed(take_one(bed.right_queue), 11, right, local_mistakes,
               work_error_class::local_programming);
  check_failed(take_one(bed.left_queue), 1, left, {remote_operation_error},
               work_error_class::remote);
  check_broken(left, bed.left_queue);
  check_broken(right, bed.right_queue);
}

}  // namespace

TEST_CASE_METHOD(two_queue_pairs, "a message longer than its receive fails on both ends") {
  buffer<> memory(bed.domain, 256);
  must(right.post_receive({.elements = memory.scatter(0, 63)}, {.id = 11}));
  must(right.post_receive({.elements = memory.scatter(0, 128)}, {.id = 12}));
  must(left.post_send({.elements = memory.gather(128, 64)}, {.id = 1}));
  must(left.post_send({.elements = memory.gather(128, 64)}, {.id = 2}));

  // The rxe driver in Linux 6.1 reports that the receive request was malformed. Later versions
  // report the same status at both ends.
  const work_completion receive = take_one(bed.right_queue);
  check_failed(receive, 11, right,
               {local_length_error, local_queue_pair_operation_error, remote_invalid_request_error},
               status_of(receive) == remote_invalid_request_error
                   ? work_error_class::remote
                   : work_error_class::local_programming);
  check_failed(take_one(bed.left_queue), 1, left,
               {remote_invalid_request_error, remote_operation_error}, work_error_class::remote);
  // The remaining requests are flushed at both ends.
  check_failed(take_one(bed.left_queue), 2, left, {flushed}, work_error_class::flushed);
  check_failed(take_one(bed.right_queue), 12, right, {flushed}, work_error_class::flushed);
  check_broken(left, bed.left_queue);
  check_broken(right, bed.right_queue);
}

TEST_CASE("peers cannot access a released region") {
  const testbed bed;
  const stale_memory stale = stale_memory::of(bed.domain, 64);
  check_write_refused(bed, stale.far);
  check_read_refused(bed, stale.far);
}

TEST_CASE("a wrong rkey is refused") {
  const testbed bed;
  buffer<> far(bed.domain, 64);
  const auto good = far.remote();
  const remote_key wrong(good.rkey().value() ^ 0x00a50000);
  check_write_refused(bed, {good.address(), good.length(), wrong});
  check_read_refused(bed, {good.address(), good.length(), wrong});
}

TEST_CASE("access beyond the bounds of a region is refused and writes nothing") {
  const testbed bed;
  // The region is in the middle of the vector. The rest of the vector must not change.
  std::vector<std::byte> memory(192, std::byte{0x77});
  const auto region =
      must(register_memory<all_rights>(bed.domain, std::span(memory).subspan(64, 64)));
  const auto good = must(region.remote());
  const std::uint64_t start = good.address();
  check_write_refused(bed, {start, 65, good.rkey()});
  check_write_refused(bed, {start - 1, 2, good.rkey()});
  check_write_refused(bed, {start + 64, 1, good.rkey()});
  check_write_refused(bed, {start + 63, 2, good.rkey()});
  check_write_refused(bed, {~std::uint64_t{0} - 7, 8, good.rkey()});
  check_read_refused(bed, {start, 65, good.rkey()});
  check_read_refused(bed, {start - 1, 1, good.rkey()});
  CHECK(std::all_of(memory.begin(), memory.end(),
                    [](std::byte byte) { return byte == std::byte{0x77}; }));
}

TEST_CASE("a region without the remote right is refused") {
  const testbed bed;
  constexpr access_flags readable = access::local_write | access::remote_read;
  constexpr access_flags writable = access::local_write | access::remote_write;
  buffer<readable> for_reads(bed.domain, 64);
  buffer<writable> for_writes(bed.domain, 64);
  const auto read_only = for_reads.remote();
  const auto write_only = for_writes.remote();
  check_write_refused(bed, {read_only.address(), 64, read_only.rkey()});
  check_read_refused(bed, {write_only.address(), 64, write_only.rkey()});

  buffer<access::local_write> for_nobody(bed.domain, 64);
  const ibv_mr* region = for_nobody.region().native_handle();
  check_write_refused(
      bed, {reinterpret_cast<std::uintptr_t>(region->addr), 64, remote_key(region->rkey)});
}

TEST_CASE("a queue pair without the remote right refuses access") {
  const testbed bed;
  buffer<> far(bed.domain, 64);
  const auto good = far.remote();
  const auto connect_to_one_with = [&](access_flags rights) {
    return connect(must(bed.left().build()),
                   must(bed.builder(bed.right_queue).access(rights).build()));
  };
  connected_pair none = connect_to_one_with(access::local_write);
  check_refused(bed, none, good.address(), 64, good.rkey(), false, queue_pair_refusals);
  connected_pair reads = connect_to_one_with(access::local_write | access::remote_read);
  check_refused(bed, reads, good.address(), 64, good.rkey(), false, queue_pair_refusals);
  connected_pair writes = connect_to_one_with(access::local_write | access::remote_write);
  check_refused(bed, writes, good.address(), 64, good.rkey(), true, queue_pair_refusals);
}

TEST_CASE("a peer cannot access memory of another protection domain") {
  const testbed bed;
  const protection_domain other = must(protection_domain::allocate(bed.context));
  buffer<> far(other, 64);
  check_write_refused(bed, far.remote());
  check_read_refused(bed, far.remote());
}

TEST_CASE(
    "a request whose memory the local device is not allowed to use fails with a local error") {
  const testbed bed;
  const protection_domain other = must(protection_domain::allocate(bed.context));
  SECTION("the memory was released") {
    check_send_refused_here(bed, stale_memory::of(bed.domain, 64).from);
  }
  SECTION("in another protection domain") {
    buffer<> memory(other, 64);
    check_send_refused_here(bed, memory.gather());
  }
  SECTION("beyond the region") {
    buffer<> memory(bed.domain, 64);
    ibv_sge element = memory.gather().native();
    element.length += 1;
    check_send_refused_here(bed, gather_element::from_native(element));
  }
  SECTION("before the region") {
    buffer<> memory(bed.domain, 64);
    ibv_sge element = memory.gather().native();
    element.addr -= 1;
    check_send_refused_here(bed, gather_element::from_native(element));
  }
}

TEST_CASE("a receive into memory that the device is not allowed to write fails on both ends") {
  const testbed bed;
  const protection_domain other = must(protection_domain::allocate(bed.context));
  SECTION("the memory was released") {
    check_receive_refused_there(bed, stale_memory::of(bed.domain, 64).into);
  }
  SECTION("in another protection domain") {
    buffer<> memory(other, 64);
    check_receive_refused_there(bed, memory.scatter());
  }
  SECTION("registered without local write") {
    buffer<access::local_read> memory(bed.domain, 64);
    check_receive_refused_there(bed, scatter_element::from_native(memory.gather().native()));
  }
  SECTION("beyond the region") {
    buffer<> memory(bed.domain, 32);
    ibv_sge element = memory.scatter().native();
    element.length = 64;
    check_receive_refused_there(bed, scatter_element::from_native(element));
  }
}

TEST_CASE_METHOD(two_queue_pairs,
                 "a read into memory that the device is not allowed to write is a local error") {
  buffer<> far(bed.domain, 64);
  const buffer<access::local_read> near(bed.domain, 64);
  must(left.post_read(
      {.elements = scatter_element::from_native(near.gather().native()), .remote = far.remote()},
      {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, local_mistakes,
               work_error_class::local_programming);
  check_broken(left, bed.left_queue);
}

TEST_CASE("without a receive and without retries, a send fails as receiver not ready") {
  const testbed bed;
  auto [left, right] = connect(must(bed.left().rnr_retry_count(0).build()),
                               must(bed.right().min_rnr_timer(1).build()));
  buffer<> memory(bed.domain, 64);
  must(left.post_send({.elements = memory.gather()}, {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, {receiver_not_ready_retry_exceeded},
               work_error_class::timeout);
  check_broken(left, bed.left_queue);
  check_whole(right);
}

TEST_CASE("a write with immediate data fails after a few retries if no receive is posted") {
  const testbed bed;
  auto [left, right] = connect(must(bed.left().rnr_retry_count(2).build()),
                               must(bed.right().min_rnr_timer(1).build()));
  must(left.post_write({.remote = remote_memory<access::remote_write>(0, 0, remote_key(0U)),
                        .immediate = immediate_data(1)},
                       {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, {receiver_not_ready_retry_exceeded},
               work_error_class::timeout);
}

TEST_CASE_METHOD(two_queue_pairs, "with unlimited retries a send waits for its receive") {
  buffer<> outbox(bed.domain, pattern(9000, 40));
  buffer<> inbox(bed.domain, 9000);
  must(left.post_send({.elements = outbox.gather()}, {.id = 1}));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 11}));
  take_success(bed.right_queue, 11);
  take_success(bed.left_queue, 1);
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("a destroyed peer is detected by the next send") {
  const testbed bed;
  std::optional<connected_pair> pair = connect(
      must(bed.left().ack_timeout(14).ack_retry_count(1).build()), must(bed.right().build()));
  connected left = std::move(pair->left);
  buffer<> memory(bed.domain, 64);
  must(pair->right.post_receive({.elements = memory.scatter(0, 32)}, {.id = 11}));
  must(left.post_send({.elements = memory.gather(32, 32)}, {.id = 1}));
  take_success(bed.left_queue, 1);
  take_success(bed.right_queue, 11);
  pair.reset();
  must(left.post_send({.elements = memory.gather(32, 32)}, {.id = 2}));
  must(left.post_send({.elements = memory.gather(32, 32)}, {.id = 3}));
  check_failed(take_one(bed.left_queue), 2, left, {retry_exceeded}, work_error_class::timeout);
  check_failed(take_one(bed.left_queue), 3, left, {flushed}, work_error_class::flushed);
  check_broken(left, bed.left_queue);
}

TEST_CASE("a destroyed peer is detected with the default number of retries") {
  const testbed bed;
  std::optional<connected_pair> pair = connect(bed);
  connected left = std::move(pair->left);
  pair.reset();
  buffer<> memory(bed.domain, 32);
  must(left.post_send({.elements = memory.gather()}, {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, {retry_exceeded}, work_error_class::timeout);
}

TEST_CASE("a peer that is destroyed in the middle of a stream is detected") {
  const testbed bed;
  std::optional<connected_pair> pair = connect(
      must(bed.left().ack_timeout(14).ack_retry_count(1).build()), must(bed.right().build()));
  connected left = std::move(pair->left);
  constexpr std::size_t size = std::size_t{1} << 20;
  buffer<> near(bed.domain, size);
  buffer<> far(bed.domain, size);
  for (std::uint64_t id = 0; id < 8; ++id)
    must(left.post_write({.elements = near.gather(), .remote = far.remote()}, {.id = id}));
  pair.reset();
  // The first writes may have completed before the peer was destroyed. The next write, if there is
  // one, fails, and those after it are flushed.
  std::size_t succeeded = 0, exceeded = 0, flushed_behind = 0;
  for (const work_completion& each : take(bed.left_queue, 8)) {
    CHECK(each.wr_id() == succeeded + exceeded + flushed_behind);
    switch (status_of(each)) {
      case work_status::success:
        CHECK(exceeded == 0);
        ++succeeded;
        break;
      case flushed:
        CHECK(exceeded == 1);
        ++flushed_behind;
        break;
      default:
        CHECK(status_of(each) == retry_exceeded);
        ++exceeded;
    }
  }
  CHECK((exceeded == 1 || succeeded == 8));
  must(near.region().gather());
}

TEST_CASE_METHOD(two_queue_pairs, "moving to ERR flushes requests in flight in order") {
  buffer<> memory(bed.domain, 64);
  constexpr std::uint64_t count = 8;
  // Nothing completes, because the peer has no receives and the sends are retried forever.
  for (std::uint64_t id = 0; id < count; ++id) {
    must(left.post_send({.elements = memory.gather(0, 32)}, {.id = id, .signaled = id % 2 == 0}));
    must(left.post_receive({.elements = memory.scatter(32, 32)}, {.id = 100 + id}));
  }
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  move_to_error(left.native_handle());
  std::uint64_t sends = 0, receives = 0;
  // Flushed requests complete even if they are unsignaled.
  for (const work_completion& each : take(bed.left_queue, 2 * count)) {
    const std::uint64_t expected = each.wr_id() < 100 ? sends++ : 100 + receives++;
    check_failed(each, expected, left, {flushed}, work_error_class::flushed);
  }
  CHECK(sends == count);
  CHECK(receives == count);
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  check_whole(right);
}

TEST_CASE_METHOD(two_queue_pairs, "requests posted in ERR are flushed") {
  buffer<> memory(bed.domain, 64);
  move_to_error(left.native_handle());
  must(left.post_send({.elements = memory.gather()}, {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, {flushed}, work_error_class::flushed);
  must(left.post_write({.elements = memory.gather(), .remote = memory.remote()}, {.id = 2}));
  must(left.post_read({.elements = memory.scatter(), .remote = memory.remote()}, {.id = 3}));
  for (std::uint64_t id = 2; id <= 3; ++id)
    check_failed(take_one(bed.left_queue), id, left, {flushed}, work_error_class::flushed);

  must(left.post_receive({.elements = memory.scatter()}, {.id = 4}));
  // rxe posts receives without a call to the kernel. The kernel processes them only at the next
  // call.
  if (!device_name().starts_with("soft")) move_to_error(left.native_handle());
  check_failed(take_one(bed.left_queue), 4, left, {flushed}, work_error_class::flushed);
}

TEST_CASE_METHOD(two_queue_pairs,
                 "a failure of one queue pair does not affect others of its completion queue") {
  auto [other_left, other_right] = connect(bed);
  buffer<> memory(bed.domain, 64);
  must(left.post_write(
      {.elements = memory.gather(), .remote = stale_memory::of(bed.domain, 64).far}, {.id = 1}));
  check_failed(take_one(bed.left_queue), 1, left, access_refusals, work_error_class::remote);
  must(other_right.post_receive({.elements = memory.scatter(0, 32)}, {.id = 11}));
  must(other_left.post_send({.elements = memory.gather(32, 32)}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 11);
}
