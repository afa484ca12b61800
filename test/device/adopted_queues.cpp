// SPDX-License-Identifier: Apache-2.0
/// \file
/// Queues and completion channels that were created by other code, such as a C program or
/// librdmacm, or are passed to such code.

#include "device.hpp"
#include "failing_verb.hpp"

#include <fcntl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

struct destroy_native {
  void operator()(ibv_cq* queue) const { CHECK(ibv_destroy_cq(queue) == 0); }
  void operator()(ibv_srq* queue) const { CHECK(ibv_destroy_srq(queue) == 0); }
  void operator()(ibv_comp_channel* channel) const {
    CHECK(ibv_destroy_comp_channel(channel) == 0);
  }
};
template <class Native>
using native_owner = std::unique_ptr<Native, destroy_native>;

/// The user data that a C program stored in its queues. The library must not change it.
int users_own = 0;

native_owner<ibv_comp_channel> c_channel(const testbed& bed) {
  native_owner<ibv_comp_channel> made(ibv_create_comp_channel(bed.context.native_handle()));
  REQUIRE(made != nullptr);
  return made;
}

native_owner<ibv_cq> c_queue(const testbed& bed, ibv_comp_channel* channel = nullptr) {
  native_owner<ibv_cq> made(ibv_create_cq(bed.context.native_handle(), 8, &users_own, channel, 0));
  REQUIRE(made != nullptr);
  return made;
}

native_owner<ibv_srq> c_shared_queue(const testbed& bed) {
  ibv_srq_init_attr initial{};
  initial.attr.max_wr = 4;
  initial.attr.max_sge = 1;
  return native_owner<ibv_srq>(ibv_create_srq(bed.domain.native_handle(), &initial));
}

/// Performs one write whose completion goes to the queue, and polls this completion.
void write_through(const testbed& bed, const completion_queue& queue, std::uint64_t id) {
  buffer<> target(bed.domain, 8);
  connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
  must(alone.post_write({.remote = target.remote()}, {.id = id}));
  take_success(queue, id);
}

/// Requests an event from the queue, and causes the event with a write.
void make_event(const testbed& bed, const completion_queue& queue) {
  REQUIRE(ibv_req_notify_cq(queue.native_handle(), 0) == 0);
  write_through(bed, queue, 1);
}

}  // namespace

TEST_CASE("a borrowed completion queue of a C program is not destroyed") {
  const testbed bed;
  const auto native = c_queue(bed);
  {
    const auto queue =
        must(completion_queue::from_native(bed.context, native.get(), ownership::borrowed));
    CHECK(queue.native_handle() == native.get());
    CHECK(queue.capacity() >= 8);
    CHECK(queue.context() == bed.context);
    write_through(bed, queue, 4);
  }
  CHECK(native->cq_context == &users_own);
  ibv_wc entry{};
  CHECK(ibv_poll_cq(native.get(), 1, &entry) == 0);
}

TEST_CASE("an adopted completion queue is destroyed by the library") {
  const testbed bed;
  const int before = live_objects();
  {
    const auto queue =
        must(completion_queue::from_native(bed.context, c_queue(bed).release(), ownership::taken));
    CHECK(live_objects() == before + 1);
    write_through(bed, queue, 4);
  }
  CHECK(live_objects() == before);
}

TEST_CASE("objects that are not queues of the context are not adopted") {
  const testbed bed;
  const testbed other;
  const auto native = c_queue(bed);
  const auto refused = [](const auto& outcome) {
    const error e = failure_of(outcome);
    CHECK(e == error_kind::invalid_input);
    return e.message();
  };
  using queue = completion_queue;
  CHECK_THAT(refused(queue::from_native(bed.context, nullptr, ownership::taken)),
             Catch::Contains("the queue is null"));
  CHECK_THAT(refused(queue::from_native(other.context, native.get(), ownership::borrowed)),
             Catch::Contains("another context"));
  CHECK_THAT(refused(completion_channel::from_native(bed.context, nullptr, ownership::taken)),
             Catch::Contains("the channel is null"));
  const auto channel = c_channel(bed);
  CHECK_THAT(
      refused(completion_channel::from_native(other.context, channel.get(), ownership::borrowed)),
      Catch::Contains("another context"));
  const auto own = must(completion_channel::create(bed.context));
  CHECK_THAT(
      refused(waitable_completion_queue::from_native(own, native.get(), ownership::borrowed)),
      Catch::Contains("another completion channel, or to none"));
  context gone = bed.context;
  const context kept = std::move(gone);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK_THAT(refused(queue::from_native(gone, native.get(), ownership::borrowed)),
             Catch::Contains("moved from"));
}

TEST_CASE("an extended completion queue of a C program is read field by field") {
  const testbed bed;
  ibv_cq_init_attr_ex initial{};
  initial.cqe = 8;
  initial.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* const native = ibv_create_cq_ex(bed.context.native_handle(), &initial);
  if (native == nullptr) SKIP("this device has no extended completion queues");
  using timed =
      extended_completion_queue<completion_feature::byte_count | completion_feature::timestamp>;
  // If timestamps were not requested, drivers leave this pointer null.
  native->read_completion_ts = nullptr;
  CHECK_THAT(failure_of(timed::from_native(bed.context, native, ownership::borrowed)).message(),
             Catch::Contains("was not created with all of these completion fields"));
  using sized = extended_completion_queue<completion_feature::byte_count>;
  for (int round = 0; round < 2; ++round) {
    const auto queue = must(sized::from_native(bed.context, native, ownership::borrowed));
    buffer<> memory(bed.domain, 8);
    connected alone = connect_to_itself(must(bed.builder(queue).access(all_rights).build()));
    must(alone.post_read({.elements = memory.scatter(), .remote = memory.remote()}));
    wait_until(
        [&] {
          return must(queue.poll_each([](const auto& completion) {
                   CHECK(completion.get().value().byte_count() == 8U);
                 })) == 1;
        },
        "a completion");
    CHECK(must(queue.poll_each([](const auto&) {})) == 0);
  }
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(native)) == 0);
}

TEST_CASE("a thread can wait for a queue of a C program that has its own user data") {
  const testbed bed;
  const auto native_channel = c_channel(bed);
  const auto native = c_queue(bed, native_channel.get());
  const auto unknown = c_queue(bed, native_channel.get());
  {
    const auto channel = must(
        completion_channel::from_native(bed.context, native_channel.get(), ownership::borrowed));
    CHECK((::fcntl(channel.file_descriptor(), F_GETFL) & O_NONBLOCK) != 0);
    const auto queue =
        must(waitable_completion_queue::from_native(channel, native.get(), ownership::borrowed));
    const auto own = must(waitable_completion_queue::create(channel, 8));
    for (const auto& each : {queue, own, queue}) {
      make_event(bed, each);
      CHECK(must(channel.wait(patience)) == each);
    }
    // The channel drops the events of queues that the library has not adopted as waitable.
    make_event(
        bed, must(completion_queue::from_native(bed.context, unknown.get(), ownership::borrowed)));
    CHECK_FALSE(must(channel.wait(moment)));
    std::array<work_completion, 2> slots;
    CHECK(must(queue.wait(slots, moment)).empty());
    // The library's handles to this queue are destroyed before the event is read, so the channel
    // drops this event as well.
    make_event(bed, queue);
  }
  const auto again =
      must(completion_channel::from_native(bed.context, native_channel.get(), ownership::borrowed));
  CHECK_FALSE(must(again.wait(moment)));
}

TEST_CASE("an event of a C program's queue is not mistaken for an event of the library's queues") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto before = must(waitable_completion_queue::create(channel, 8));
  const auto native = c_queue(bed, channel.native_handle());
  const auto queue =
      must(waitable_completion_queue::from_native(channel, native.get(), ownership::borrowed));
  const auto after = must(waitable_completion_queue::create(channel, 8));
  for (const auto& each : {before, queue, after}) {
    make_event(bed, each);
    CHECK(must(channel.wait(patience)) == each);
  }
}

// NOLINTBEGIN(bugprone-use-after-move): these tests use handles after they were released
TEST_CASE("a completion queue can be released when it has no other owner") {
  const testbed bed;
  auto queue = must(completion_queue::create(bed.context, 4));
  {
    const completion_queue copy = queue;
    const error e = failure_of(std::move(queue).release());
    CHECK(e == error_kind::busy);
    CHECK(queue == copy);
  }
  {
    const auto user = must(bed.builder(queue).access(all_rights).build());
    CHECK(failure_of(std::move(queue).release()) == error_kind::busy);
  }
  const native_owner<ibv_cq> native(must(std::move(queue).release()));
  CHECK(queue.native_handle() == nullptr);
  CHECK(failure_of(std::move(queue).release()) == error_kind::invalid_input);
  ibv_wc entry{};
  CHECK(ibv_poll_cq(native.get(), 1, &entry) == 0);
}

TEST_CASE("events of a released waitable queue are dropped") {
  const testbed bed;
  const auto channel = must(completion_channel::create(bed.context));
  const auto other = must(waitable_completion_queue::create(channel, 8));
  auto queue = must(waitable_completion_queue::create(channel, 8));
  make_event(bed, queue);
  const native_owner<ibv_cq> native(must(std::move(queue).release()));
  make_event(bed,
             must(completion_queue::from_native(bed.context, native.get(), ownership::borrowed)));
  CHECK_FALSE(must(channel.wait(moment)));
  make_event(bed, other);
  CHECK(must(channel.wait(patience)) == other);
}

TEST_CASE("a completion channel can be released when no queue reports to it") {
  const testbed bed;
  auto channel = must(completion_channel::create(bed.context));
  {
    const auto queue = must(waitable_completion_queue::create(channel, 8));
    CHECK(failure_of(std::move(channel).release()) == error_kind::busy);
  }
  const native_owner<ibv_comp_channel> native(must(std::move(channel).release()));
  CHECK(failure_of(std::move(channel).release()) == error_kind::invalid_input);
  const auto taken =
      must(completion_channel::from_native(bed.context, native.get(), ownership::borrowed));
  const auto queue = must(waitable_completion_queue::create(taken, 8));
  make_event(bed, queue);
  CHECK(must(taken.wait(patience)) == queue);
}

TEST_CASE("a shared receive queue can be adopted and released") {
  const testbed bed;
  const testbed other;
  const auto native = c_shared_queue(bed);
  if (native == nullptr) SKIP("this device has no shared receive queues");
  CHECK(failure_of(shared_receive_queue::from_native(bed.domain, nullptr, ownership::taken)) ==
        error_kind::invalid_input);
  CHECK(failure_of(shared_receive_queue::from_native(
            other.domain, native.get(), ownership::borrowed)) == error_kind::invalid_input);
  buffer<> inbox(bed.domain, 8);
  {
    const auto queue =
        must(shared_receive_queue::from_native(bed.domain, native.get(), ownership::borrowed));
    CHECK(queue.capacities().max_work_requests >= 4);
    CHECK(queue.capacities().max_elements >= 1);
    must(queue.post_receive({.elements = inbox.scatter()}));
  }
  const int before = live_objects();
  auto queue = must(shared_receive_queue::from_native(bed.domain, c_shared_queue(bed).release(),
                                                      ownership::taken));
  {
    const auto user = must(bed.left().shared_receive_queue(queue).build());
    CHECK(failure_of(std::move(queue).release()) == error_kind::busy);
  }
  const native_owner<ibv_srq> given(must(std::move(queue).release()));
  CHECK(failure_of(std::move(queue).release()) == error_kind::invalid_input);
  CHECK(live_objects() == before + 1);
  const auto taken = must(shared_receive_queue::from_native(
      bed.domain, c_shared_queue(bed).release(), ownership::taken));
  CHECK(live_objects() == before + 2);
}
// NOLINTEND(bugprone-use-after-move)
