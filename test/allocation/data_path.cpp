// SPDX-License-Identifier: Apache-2.0
/// \file
/// Checks that the data path does not allocate: posting, polling, waiting, events, leases through
/// memory windows, messages of pools and hubs, and errors. Allocations by the device itself do not
/// count.

#include "../device/channels.hpp"
#include "counter.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr auto fields = completion_feature::byte_count | completion_feature::queue_pair_number;

/// A testbed that does not count allocations by the driver's functions that post, poll, and request
/// notifications.
struct marked_testbed : testbed {
  marked_testbed() {
    ibv_context_ops& operations = context.native_handle()->ops;
    mark_as_device<0>(operations.poll_cq);
    mark_as_device<1>(operations.req_notify_cq);
    mark_as_device<2>(operations.post_send);
    mark_as_device<3>(operations.post_recv);
    mark_as_device<4>(operations.post_srq_recv);
  }
};

void mark(ibv_cq_ex& queue) {
  mark_as_device<10>(queue.start_poll);
  mark_as_device<11>(queue.next_poll);
  mark_as_device<12>(queue.end_poll);
}

void mark(ibv_qp_ex& pair) {
  mark_as_device<20>(pair.wr_start);
  mark_as_device<21>(pair.wr_rdma_write);
  mark_as_device<22>(pair.wr_set_sge);
  mark_as_device<23>(pair.wr_set_sge_list);
  mark_as_device<24>(pair.wr_complete);
}

/// Takes completions without allocating, unlike `take`.
template <class Poll>
void poll_until(std::size_t count, Poll poll) {
  const auto deadline = clock::now() + patience;
  for (std::size_t got = 0; got < count;) {
    got += poll();
    if (clock::now() > deadline) throw failure(__FILE__, __LINE__, "no completion arrived");
  }
}

/// Keeps the compiler from removing an allocation.
void* volatile escaped = nullptr;
void allocate_one() {
  escaped = ::operator new(24);
  ::operator delete(escaped);
}

}  // namespace

TEST_CASE("the counter counts only this thread's own allocations outside of the device") {
  CHECK(allocations_in([] {}) == 0);
  CHECK(allocations_in(allocate_one) == 1);
  CHECK(allocations_in([] {
          escaped = std::malloc(8);
          std::free(escaped);
          escaped = std::calloc(2, 8);
          std::free(escaped);
        }) == 2);
  CHECK(allocations_in([] { std::string(100, 'x').swap(*std::make_unique<std::string>()); }) == 2);
  std::thread other;
  CHECK(allocations_in([&] {
          const within_device device;
          allocate_one();
        }) == 0);
  std::atomic<bool> go{false};
  std::atomic<bool> done{false};
  other = std::thread([&] {
    while (!go) std::this_thread::yield();
    allocate_one();
    done = true;
  });
  CHECK(allocations_in([&] {
          go = true;
          while (!done) std::this_thread::yield();
        }) == 0);
  other.join();
}

TEST_CASE("posting and polling do not allocate") {
  const marked_testbed bed;
  connected_pair pair = connect(bed);
  buffer<> memory(bed.domain, 64);
  std::array<work_completion, 4> slots;
  const auto poll = [&](const completion_queue& queue) {
    return [&] { return must(queue.poll(slots)).size(); };
  };
  const auto target = must(memory.remote().slice(32, 8));
  CHECK(
      allocations_in([&] {
        must(pair.right.post_receive({.elements = memory.scatter(0, 8)}, {.id = 1}));
        must(pair.right.post_receive_batch<2>([&](auto& batch) {
          batch.post_receive({.elements = memory.scatter(8, 8)}, {.id = 2});
          batch.post_receive({.elements = memory.scatter(8, 8)}, {.id = 3});
        }));
        must(pair.left.post_send({.elements = memory.gather(16, 8)}, {.id = 4}));
        must(pair.left.post_write({.elements = memory.gather(16, 8), .remote = target}, {.id = 5}));
        must(pair.left.post_read({.elements = memory.scatter(24, 8), .remote = target}, {.id = 6}));
        must(pair.left.post_batch<4>([&](auto& batch) {
          batch.post_send({.elements = memory.gather(16, 8)}, {.id = 7});
          batch.post_write({.elements = memory.gather(16, 8), .remote = target}, {.id = 8});
        }));
        poll_until(5, poll(bed.left_queue));
        poll_until(2, poll(bed.right_queue));
        static_cast<void>(poll(bed.left_queue)());
      }) == 0);
}

TEST_CASE("failures are reported without allocating") {
  const marked_testbed bed;
  connected_pair pair = connect(bed);
  buffer<> memory(bed.domain, 8);
  const std::vector<gather_element> too_many(pair.left.capacities().max_send_elements + 1,
                                             memory.gather());
  std::array<work_completion, 1> slots;
  std::array<char, 512> text{};
  CHECK(allocations_in([&] {
          const error refused = failure_of(pair.left.post_send({.elements = too_many}));
          refused.format(text);
          const batch_error batch = failure_of(pair.left.post_batch<1, 64>(
              [&](auto& requests) { requests.post_send({.elements = too_many}); }));
          batch.cause().format(text);
          move_to_error(pair.left.native_handle());
          must(pair.left.post_send({}, {.id = 9}));
          poll_until(1, [&] { return must(bed.left_queue.poll(slots)).size(); });
          failure_of(slots[0].get()).format(text);
        }) == 0);
  CHECK_THAT(text.data(), Catch::Contains("flushed"));
}

TEST_CASE("posting to a shared receive queue does not allocate") {
  const marked_testbed bed;
  if (bed.limits.max_srq <= 0) SKIP("this device has no shared receive queues");
  const auto shared = must(shared_receive_queue::create(bed.domain, 4));
  buffer<> memory(bed.domain, 8);
  CHECK(allocations_in([&] {
          must(shared.post_receive({.elements = memory.scatter()}));
          must(shared.post_receive_batch<1>(
              [&](auto& batch) { batch.post_receive({.elements = memory.scatter()}); }));
        }) == 0);
}

TEST_CASE("the extended interfaces do not allocate, but a visitor's own allocations are counted") {
  const marked_testbed bed;
  const auto made = extended_completion_queue<fields>::create(bed.context, 64);
  if (made.has_error()) SKIP("this device has no extended completion queues with these fields");
  const auto& queue = made.assume_value();
  auto built = bed.builder(queue).access(all_rights).extended_posting().build();
  if (built.has_error()) SKIP("this device has no extended posting interface");
  auto pair = connect_to_itself(std::move(built).assume_value());
  mark(*reinterpret_cast<ibv_cq_ex*>(queue.native_handle()));
  mark(*ibv_qp_to_qp_ex(pair.native_handle()));
  buffer<> memory(bed.domain, 16);
  const auto write_and_poll = [&](auto visit) {
    return allocations_in([&] {
      must(pair.post_batch<2>([&](auto& batch) {
        batch.post_write({.elements = memory.gather(0, 8), .remote = memory.remote()});
        batch.post_write({.elements = memory.gather(0, 8), .remote = memory.remote()});
      }));
      poll_until(2, [&] { return must(queue.poll_each(visit)); });
    });
  };
  CHECK(write_and_poll([](const auto& completion) {
          static_cast<void>(completion.get().value().byte_count());
        }) == 0);
  CHECK(write_and_poll([](const auto&) { allocate_one(); }) == 2);
}

TEST_CASE("waiting does not allocate even if it sleeps") {
  const marked_testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto queue = must(waitable_completion_queue::create(channel, 16));
  connected_pair pair =
      connect(must(bed.left().build()), must(bed.builder(queue).access(all_rights).build()));
  std::array<work_completion, 4> slots;
  for (const std::uint64_t id : {1U, 2U, 3U}) must(pair.right.post_receive({}, {.id = id}));
  std::size_t got = 0;
  // The sender waits for this flag, so that the first two waits end without a completion, however
  // long they take.
  std::atomic<bool> expects_one{false};
  std::thread sender([&] {
    while (!expects_one) std::this_thread::yield();
    // steady: after this pause, the last wait has likely begun; it returns the completion even if
    // it begins later
    std::this_thread::sleep_for(moment);
    must(pair.left.post_send({}));
  });
  CHECK(allocations_in([&] {
          static_cast<void>(must(queue.wait(slots, clock::now())));
          static_cast<void>(must(queue.wait(slots, clock::now() + std::chrono::milliseconds(1))));
          expects_one = true;
          got = must(queue.wait(slots, clock::now() + patience)).size();
        }) == 0);
  sender.join();
  CHECK(got == 1);
  std::optional<waitable_completion_queue> event;
  CHECK(allocations_in([&] {
          must(queue.request_notification());
          must(pair.left.post_send({}));
          event = must(channel.wait(clock::now() + patience));
          while (event) event = must(channel.poll());
        }) == 0);
}

TEST_CASE("reading asynchronous events does not allocate") {
  const marked_testbed bed;
  connected_pair pair = connect(bed);
  std::optional<async_event> event;
  start_draining(pair.left);
  std::optional<async_event> none;
  CHECK(allocations_in([&] {
          event = must(bed.context.wait_async_event(clock::now() + patience));
          none = must(bed.context.poll_async_event());
        }) == 0);
  REQUIRE(event);
  CHECK(event->concerns(pair.left));
  CHECK_FALSE(none);
}

TEST_CASE("leasing by memory window does not allocate, except for the channel's first lease") {
  const marked_testbed bed;
  if (device_name().starts_with("rxe")) {
    WARN(
        "with this driver, each lease allocates a window, because the library does not invalidate "
        "it");
    return;
  }
  channel_pair ends = connect_channels(static_cast<const testbed&>(bed));
  buffer<access::local_write | access::window_bind> memory(bed.domain, 64);
  const auto part = must(memory.region().window_part<access::remote_write>(0, 64));
  auto first = ends.left.lease(part);
  if (first.has_error()) {
    REQUIRE(first.error() == error_kind::not_supported);
    WARN("this device has no memory windows of type 2");
    return;
  }
  must(first.value().revoke());
  CHECK(allocations_in([&] {
          auto lease = must(ends.left.lease(part));
          must(lease.remote());
          must(lease.revoke());
        }) == 0);
}

TEST_CASE("messages of a pool can be sent and received without allocating") {
  const marked_testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 64, 64));
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().build());
  auto arrivals = must(inbox::open(right, pool));
  const endpoint left_end = left.endpoint();
  channel here = must(std::move(left).handshake(right.endpoint()));
  channel there = must(std::move(right).handshake(left_end));
  CHECK(allocations_in([&] {
          for (std::size_t i = 0; i < 100; ++i) {
            message request = must(pool.take());
            must(request.resize(i % 64));
            must(must(here.post_send(std::move(request))).wait(patience));
            const message arrived = must(arrivals.wait(patience));
            if (arrived.size() != i % 64)
              throw failure(__FILE__, __LINE__, "a different message arrived");
          }
        }) == 0);
}

TEST_CASE("a hub returns messages without allocating") {
  const marked_testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 64, 64));
  auto hub = channel_hub::create(bed.domain, pool, {.receives = 32});
  if (!hub.has_value()) {
    CHECK(hub.error() == error_kind::not_supported);
    return;
  }
  auto left = must(bed.domain.build_channel().hub(hub.value()).build());
  auto right = must(bed.domain.build_channel().build());
  auto arrivals = must(inbox::open(right, pool));
  const endpoint left_end = left.endpoint();
  channel here = must(std::move(left).handshake(right.endpoint()));
  channel there = must(std::move(right).handshake(left_end));
  std::array<arrival, 4> slots;
  CHECK(allocations_in([&] {
          for (int i = 0; i < 100; ++i) {
            must(there.post_send(must(pool.take())));
            for (bool is_echoed = false; !is_echoed;)
              for (arrival& each : must(hub.value().wait(slots, patience))) {
                here.poll();
                if (!each.message) continue;
                is_echoed = here.post_send(std::move(each.message)).has_value();
              }
            static_cast<void>(must(arrivals.wait(patience)));
          }
        }) == 0);
}
