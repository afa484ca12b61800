// SPDX-License-Identifier: Apache-2.0
/// \file
/// Incorrect use of the library, and a port that is down. Incorrect use of memory is tested in
/// work_errors.cpp.

#include "datagrams.hpp"
#include "failing_verb.hpp"

#include <string>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

void check_above_limit(const error& e, const char* what, std::size_t asked, std::size_t limit) {
  INFO(e);
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains(std::string(what)) &&
                              Catch::Contains(std::to_string(asked) + " is above the limit of " +
                                              std::to_string(limit)));
}

/// Calls `test` with a queue pair that is connected to itself, once for each interface through
/// which the device can post batches.
template <class Test>
void with_each_interface(const testbed& bed, Test test) {
  const auto builder = bed.left().max_inline_data(32).max_send_elements(2);
  {
    INFO("linked lists");
    test(connect_to_itself(must(builder.build())));
  }
  INFO("the extended interface");
  test(connect_to_itself(supported(builder.extended_posting().build(), extended_posting)));
}

}  // namespace

TEST_CASE("inline data above the limit is refused and the error gives its size and the limit") {
  const testbed bed;
  buffer<> target(bed.domain, 4096);
  with_each_interface(bed, [&](auto left) {
    const std::size_t limit = left.capacities().max_inline_data;
    REQUIRE(limit < target.size());
    const std::vector<std::byte> bytes = pattern(limit + 1, 60);
    const inline_payload too_long(bytes);
    const auto check = [&](const error& e) {
      check_above_limit(e, "bytes of inline data", limit + 1, limit);
    };
    check(failure_of(left.post_send({.elements = too_long})));
    check(failure_of(left.post_write({.elements = too_long, .remote = target.remote()})));
    const batch_error batch = failure_of(left.template post_batch<2>([&](auto& requests) {
      requests.post_write({.elements = too_long, .remote = target.remote()});
      requests.post_write({.elements = too_long, .remote = target.remote()});
    }));
    check(batch.cause());
    CHECK(batch.accepted() == 0);
    CHECK(count_within_a_moment(bed.left_queue) == 0);

    const inline_payload longest(std::span<const std::byte>(bytes).first(limit));
    must(left.post_write({.elements = longest, .remote = target.remote()}, {.id = 1}));
    take_success(bed.left_queue, 1);
    must(left.template post_batch<1>([&](auto& requests) {
      requests.post_write({.elements = longest, .remote = target.remote()}, {.id = 2});
    }));
    take_success(bed.left_queue, 2);
    CHECK(target.front(limit) == pattern(limit, 60));
  });
}

TEST_CASE(
    "too many elements in a batch are refused and the error gives their number and the limit") {
  const testbed bed;
  buffer<> target(bed.domain, 4096);
  buffer<> source(bed.domain, 8);
  with_each_interface(bed, [&](auto left) {
    const std::size_t limit = left.capacities().max_send_elements;
    constexpr std::size_t room = 256;
    REQUIRE(limit < room);
    const std::vector<gather_element> too_many(limit + 1, source.gather());
    const batch_error e = failure_of(left.template post_batch<1, room>([&](auto& requests) {
      requests.post_write({.elements = too_many, .remote = target.remote()});
    }));
    check_above_limit(e.cause(), "scatter-gather elements", limit + 1, limit);
    CHECK(e.accepted() == 0);
    CHECK(count_within_a_moment(bed.left_queue) == 0);
    must(left.template post_batch<1>([&](auto& requests) {
      requests.post_write({.elements = source.gather(), .remote = target.remote()}, {.id = 1});
    }));
    take_success(bed.left_queue, 1);
  });
}

TEST_CASE("too many elements of a shared receive are refused, with their number and the limit") {
  const testbed bed;
  if (bed.limits.max_srq <= 0) SKIP("this device has no shared receive queues");
  const auto shared = must(shared_receive_queue::create(bed.domain, 4, 2));
  buffer<> inbox(bed.domain, 8);
  const std::size_t limit = shared.capacities().max_elements;
  constexpr std::size_t room = 256;
  REQUIRE(limit < room);
  const std::vector<scatter_element> too_many(limit + 1, inbox.scatter());
  check_above_limit(failure_of(shared.post_receive({.elements = too_many})),
                    "scatter-gather elements", limit + 1, limit);
  const batch_error e = failure_of(shared.post_receive_batch<1, room>(
      [&](auto& receives) { receives.post_receive({.elements = too_many}); }));
  check_above_limit(e.cause(), "scatter-gather elements", limit + 1, limit);
  must(shared.post_receive({.elements = inbox.scatter()}));
}

TEST_CASE("using an address handle of another protection domain is a local error of the datagram") {
  const testbed bed;
  const protection_domain other = must(protection_domain::allocate(bed.context));
  auto receiver = right_of(bed);
  auto sender = left_of(bed);
  const path way = must(sender.path_to(receiver.endpoint()));
  const address_handle foreign = must(address_handle::create(other, bed.port.number(), way));
  must(sender.post_send({.to = foreign.destination(receiver.number(), test_key)}, {.id = 5}));
  const work_error e = failure_of(take_one(bed.left_queue).get());
  INFO(e);
  CHECK(e.wr_id() == 5);
  CHECK(e.error_class() == work_error_class::local_programming);
  CHECK(e.status() != work_status::local_length_error);
  CHECK(count_within_a_moment(bed.right_queue) == 0);

  auto next = left_of(bed);
  const address_handle own = must(next.address_of(receiver.endpoint()));
  datagram_inbox arriving(bed, receiver, 1, 8);
  send(bed, next, own.destination(receiver.number(), test_key), pattern(8, 61));
  CHECK(copy_of(arriving.take().payload()) == pattern(8, 61));
}

TEST_CASE(
    "a port that is down is reported when a queue pair is built and by a request that is posted") {
  const testbed bed;
  buffer<> target(bed.domain, 8);
  auto [left, right] = connect(must(bed.left().ack_timeout(8).ack_retry_count(1).build()),
                               must(bed.right().build()));
  {
    const failing_device fails("port-down");
    CHECK(must(bed.context.query_port(bed.port.number())).state() == port_state::down);
    const error e = failure_of(bed.left().port(bed.port.number()).build());
    CHECK(e == error_kind::not_found);
    CHECK_THAT(e.message(), Catch::Contains("not active"));
    CHECK(failure_of(bed.left().build()) == error_kind::not_found);
    const auto event = must(bed.context.wait_async_event(clock::now() + patience));
    REQUIRE(event);
    CHECK(event->type() == async_event_type::port_error);

    must(left.post_write({.remote = target.remote()}, {.id = 1}));
    const work_error failed = failure_of(take_one(bed.left_queue).get());
    CHECK(failed.status() == work_status::retry_exceeded);
    CHECK(failed.error_class() == work_error_class::timeout);
  }
  auto [next, peer] = connect(bed);
  must(next.post_write({.remote = target.remote()}, {.id = 2}));
  take_success(bed.left_queue, 2);
}
