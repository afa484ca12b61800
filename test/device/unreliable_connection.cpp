// SPDX-License-Identifier: Apache-2.0
/// \file
/// UC queue pairs: messages that arrive, and messages that are lost without an error.

#include "transports.hpp"

#include <algorithm>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using enum work_status;

using prepared_unreliable = prepared_queue_pair<transport::uc>;
using ends = pair_of<transport::uc>;

prepared_unreliable left_unreliable(const testbed& bed) {
  return prepared_of<transport::uc>(bed, bed.left_queue);
}
prepared_unreliable right_unreliable(const testbed& bed) {
  return prepared_of<transport::uc>(bed, bed.right_queue);
}
ends connected_ends(const testbed& bed) { return connect_both<transport::uc>(bed); }

error refused_before_the_device(const testbed& bed, const endpoint& remote) {
  const error e = failure_of(left_unreliable(bed).handshake(remote));
  CHECK(e.native_errno() == 0);
  return e;
}

/// Checks that both ends are still connected.
void check_whole(const testbed& bed, ends& pair) {
  CHECK(must(pair.left.query_state()) == queue_pair_state::ready_to_send);
  CHECK(must(pair.right.query_state()) == queue_pair_state::ready_to_send);
  check_messages(bed, pair);
}

/// Posts a write that the peer refuses. Checks that the writer is not notified, and that nothing is
/// written.
void check_write_is_lost(const testbed& bed, ends& pair, buffer<>& target,
                         const remote_memory<access::remote_write>& far) {
  buffer<> outbox(bed.domain, pattern(static_cast<std::size_t>(far.length()), 7));
  const std::vector<std::byte> before = target.bytes();
  must(pair.left.post_write({.elements = outbox.gather(), .remote = far}, {.id = 1}));
  take_success(bed.left_queue, 1);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  CHECK(target.bytes() == before);
  check_whole(bed, pair);
}

}  // namespace

TEST_CASE("UC: a message of any size arrives in both directions") {
  const testbed bed;
  auto pair = connected_ends(bed);
  const auto sizes = telling_sizes(bed);
  buffer<> outbox(bed.domain, pattern(sizes.back(), 1));
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    buffer<> inbox(bed.domain, std::vector<std::byte>(size + 1, std::byte{0xee}));
    const auto transfer = [&](connected_unreliable& from, connected_unreliable& to) {
      must(to.post_receive({.elements = inbox.scatter()}, {.id = 1}));
      must(from.post_send({.elements = outbox.gather(0, size)}, {.id = 2}));
      CHECK(take_success(from.send_completion_queue(), 2).operation() == work_operation::send);
      const completed_work received = take_success(to.receive_completion_queue(), 1);
      CHECK(received.operation() == work_operation::receive);
      CHECK(received.byte_count() == size);
      CHECK_FALSE(received.immediate());
      CHECK(inbox.front(size) == outbox.front(size));
      CHECK(inbox.bytes()[size] == std::byte{0xee});
      std::ranges::fill(inbox.content(), std::byte{0xee});
    };
    transfer(pair.left, pair.right);
    transfer(pair.right, pair.left);
  }
}

TEST_CASE("UC: immediate data arrives with a send and with a write") {
  const testbed bed;
  auto [left, right] = connected_ends(bed);
  buffer<> memory(bed.domain, pattern(64, 2));
  must(right.post_receive({.elements = memory.scatter(32, 16)}, {.id = 1}));
  must(left.post_send({.elements = memory.gather(0, 16), .immediate = immediate_data(0x01020304)},
                      {.id = 2}));
  take_success(bed.left_queue, 2);
  const completed_work sent = take_success(bed.right_queue, 1);
  CHECK(sent.operation() == work_operation::receive);
  CHECK(sent.byte_count() == 16U);
  CHECK(sent.immediate() == immediate_data(0x01020304));

  must(left.post_receive({}, {.id = 3}));
  must(right.post_write({.elements = memory.gather(0, 16),
                         .remote = must(memory.remote().slice(48, 16)),
                         .immediate = immediate_data(5)},
                        {.id = 4}));
  CHECK(take_success(bed.right_queue, 4).operation() == work_operation::rdma_write);
  const completed_work written = take_success(bed.left_queue, 3);
  CHECK(written.operation() == work_operation::receive_of_rdma_write);
  CHECK(written.byte_count() == 16U);
  CHECK(written.immediate() == immediate_data(5));
  CHECK(
      std::equal(memory.bytes().begin(), memory.bytes().begin() + 16, memory.bytes().begin() + 48));
}

TEST_CASE("UC: an RDMA write of any size arrives in both directions and consumes no receive") {
  const testbed bed;
  auto pair = connected_ends(bed);
  const auto sizes = telling_sizes(bed);
  buffer<> outbox(bed.domain, pattern(sizes.back(), 3));
  buffer<> inbox(bed.domain, 16);
  must(pair.left.post_receive({.elements = inbox.scatter()}, {.id = 9}));
  must(pair.right.post_receive({.elements = inbox.scatter()}, {.id = 9}));
  for (const std::size_t size : sizes) {
    INFO(size << " bytes");
    const auto transfer = [&](connected_unreliable& from, connected_unreliable& to) {
      buffer<> target(bed.domain, std::vector<std::byte>(size + 20, std::byte{0xaa}));
      must(from.post_write(
          {.elements = outbox.gather(0, size), .remote = must(target.remote().slice(9, size))},
          {.id = 1}));
      take_success(from.send_completion_queue(), 1);
      // Nothing reports that the write has arrived, but this later request can arrive only after
      // the write.
      must(from.post_write({.remote = target.remote(), .immediate = immediate_data(1)}, {.id = 2}));
      take_success(from.send_completion_queue(), 2);
      CHECK(take_success(to.receive_completion_queue(), 9).byte_count() == 0U);
      must(to.post_receive({.elements = inbox.scatter()}, {.id = 9}));
      CHECK(std::equal(outbox.bytes().begin(),
                       outbox.bytes().begin() + static_cast<std::ptrdiff_t>(size),
                       target.bytes().begin() + 9));
      CHECK(std::ranges::count(target.bytes(), std::byte{0xaa}) >= 20);
      CHECK(target.bytes()[8] == std::byte{0xaa});
      CHECK(target.bytes()[size + 9] == std::byte{0xaa});
    };
    transfer(pair.left, pair.right);
    transfer(pair.right, pair.left);
  }
}

TEST_CASE("UC: only a message without a receive is lost") {
  const testbed bed;
  auto pair = connected_ends(bed);
  buffer<> outbox(bed.domain, pattern(64, 4));
  for (std::uint64_t id = 0; id < 3; ++id) {
    must(pair.left.post_send({.elements = outbox.gather()}, {.id = id}));
    take_success(bed.left_queue, id);
  }
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  // Receives that are posted now get later messages, not those that were lost.
  check_whole(bed, pair);
}

TEST_CASE("UC: only a write with immediate data that finds no receive is lost") {
  const testbed bed;
  auto pair = connected_ends(bed);
  buffer<> outbox(bed.domain, pattern(64, 5));
  buffer<> target(bed.domain, 64);
  must(pair.left.post_write(
      {.elements = outbox.gather(), .remote = target.remote(), .immediate = immediate_data(1)},
      {.id = 1}));
  take_success(bed.left_queue, 1);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  check_whole(bed, pair);
}

TEST_CASE("UC: only a write that the peer does not permit is lost") {
  const testbed bed;
  buffer<> target(bed.domain, 64);
  const auto right_rkey = target.remote();
  SECTION("a wrong rkey") {
    auto pair = connected_ends(bed);
    check_write_is_lost(bed, pair, target,
                        {right_rkey.address(), 64, remote_key(right_rkey.rkey().value() ^ 0xff00)});
  }
  SECTION("an access beyond the region") {
    auto pair = connected_ends(bed);
    check_write_is_lost(bed, pair, target, {right_rkey.address() + 1, 64, right_rkey.rkey()});
  }
  SECTION("a queue pair without the right") {
    const auto closed = build_queue_pair<transport::uc>()
                            .protection_domain(bed.domain)
                            .completion_queue(bed.right_queue)
                            .access(access::local_write);
    auto pair = connect_both<transport::uc>(left_unreliable(bed), must(closed.build()));
    check_write_is_lost(bed, pair, target, right_rkey);
  }
}

TEST_CASE("UC: a message longer than its receive fails at the receiver only") {
  const testbed bed;
  auto [left, right] = connected_ends(bed);
  buffer<> memory(bed.domain, 256);
  must(right.post_receive({.elements = memory.scatter(0, 63)}, {.id = 11}));
  must(left.post_send({.elements = memory.gather(128, 64)}, {.id = 1}));
  take_success(bed.left_queue, 1);
  const work_completion receive = take_one(bed.right_queue);
  CHECK(receive.wr_id() == 11);
  // The rxe driver in Linux 6.1 reports that the receive request was malformed.
  CHECK(is_one_of(status_of(receive), {local_length_error, local_queue_pair_operation_error,
                                       remote_invalid_request_error}));
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
}

TEST_CASE("UC: 2000 messages with several elements arrive, most of them unsignaled") {
  const testbed bed;
  constexpr std::uint64_t count = 2000;
  constexpr std::uint64_t window = 8;
  auto [left, right] = connected_ends(bed);
  buffer<> outbox(bed.domain, window * 16);
  buffer<> inbox(bed.domain, window * 16);
  const auto slot = [](std::uint64_t id) { return static_cast<std::size_t>(id % window) * 16; };
  // Each message is sent only after its receive was posted, so that none is lost.
  for (std::uint64_t id = 0; id < count; ++id) {
    const auto content = outbox.content().subspan(slot(id), 16);
    content[0] = std::byte(id);
    content[15] = std::byte(id >> 8);
    const std::array into{inbox.scatter(slot(id), 7), inbox.scatter(slot(id) + 7, 9)};
    const std::array from{outbox.gather(slot(id), 9), outbox.gather(slot(id) + 9, 7)};
    const bool signaled = id % 4 == 3;
    must(right.post_receive({.elements = into}, {.id = id}));
    must(left.post_send({.elements = from}, {.id = id, .signaled = signaled}));
    if (signaled) take_success(bed.left_queue, id);
    const completed_work received = take_success(bed.right_queue, id);
    if (received.byte_count() != 16U || inbox.bytes()[slot(id)] != std::byte(id) ||
        inbox.bytes()[slot(id) + 15] != std::byte(id >> 8))
      FAIL("message " << id << " arrived with wrong data");
  }
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE(
    "UC: both ends use the smaller of their MTUs and requesting one above the peer's is a "
    "mismatch") {
  const testbed bed;
  const auto smaller = builder_of<transport::uc>(bed, bed.right_queue).path_mtu(256);
  auto pair = connect_both<transport::uc>(left_unreliable(bed), must(smaller.build()));
  CHECK(must(pair.left.query()).mtu() == path_mtu(256));
  CHECK(must(pair.right.query()).mtu() == path_mtu(256));
  check_messages(bed, pair);

  const auto larger = builder_of<transport::uc>(bed, bed.left_queue).path_mtu(512);
  const error e = failure_of(must(larger.build()).handshake(must(smaller.build()).endpoint()));
  check_names_both(e, "MTU", "512", "256");
  CHECK(e.native_errno() == 0);
}

TEST_CASE("UC: ends that do not match are refused before the device is called") {
  const testbed bed;
  const endpoint good = right_unreliable(bed).endpoint();
  CHECK(good.type == transport::uc);
  CHECK(good.reads_as_initiator == read_depth(0));
  CHECK(good.reads_as_target == read_depth(0));
  endpoint remote = good;
  remote.type = transport::rc;
  check_names_both(refused_before_the_device(bed, remote), "transport", "UC", "RC");
  remote.type = transport::ud;
  check_names_both(refused_before_the_device(bed, remote), "transport", "UC", "UD");
  remote = good;
  remote.link_layer = bed.is_ethernet() ? link_layer::infiniband : link_layer::ethernet;
  check_names_both(refused_before_the_device(bed, remote), "link layer", to_string(good.link_layer),
                   to_string(remote.link_layer));
  if (bed.is_ethernet()) {
    remote = good;
    remote.address = gid{};
    CHECK(refused_before_the_device(bed, remote) == error_kind::invalid_input);
  } else {
    remote = good;
    remote.lid = 0;
    CHECK(refused_before_the_device(bed, remote) == error_kind::invalid_input);
  }
  remote = good;
  for (const queue_pair_number number :
       {queue_pair_number(0), queue_pair_number(1), queue_pair_number(0xffffff)}) {
    remote.number = number;
    CHECK(refused_before_the_device(bed, remote) == error_kind::invalid_input);
  }
}

TEST_CASE("UC: a decoded endpoint connects as well") {
  const testbed bed;
  auto first = left_unreliable(bed);
  auto second = right_unreliable(bed);
  const auto first_bytes = first.endpoint().encode();
  const auto second_bytes = second.endpoint().encode();
  auto left = must(std::move(first).handshake(must(endpoint::decode(second_bytes))));
  auto right = must(std::move(second).handshake(must(endpoint::decode(first_bytes))));
  check_message<transport::uc>(bed, left, right, 1);
}

TEST_CASE("UC: a missing peer is not detected unless its address must be resolved") {
  const testbed bed;
  SECTION("an unused queue pair number") {
    endpoint remote = right_unreliable(bed).endpoint();
    auto left = must(left_unreliable(bed).handshake(remote));
    must(left.post_send({}, {.id = 1}));
    take_success(bed.left_queue, 1);
    CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  }
  SECTION("an unused address") {
    const endpoint remote = at_address_of_nobody(bed, right_unreliable(bed).endpoint());
    auto outcome = left_unreliable(bed).handshake(remote);
    if (outcome.has_value()) {
      must(outcome.assume_value().post_send({}, {.id = 1}));
      take_success(bed.left_queue, 1);
    } else {
      INFO(outcome.error());
      CHECK(std::string(outcome.error().operation()) == "modify INIT -> RTR");
      CHECK_THAT(outcome.error().message(), Catch::Contains("resolve"));
    }
  }
  SECTION("a peer that was destroyed") {
    auto pair = connected_ends(bed);
    check_messages(bed, pair);
    {
      const connected_unreliable gone = std::move(pair.right);
    }
    for (std::uint64_t id = 0; id < 4; ++id) {
      must(pair.left.post_send({}, {.id = id}));
      take_success(bed.left_queue, id);
    }
    CHECK(must(pair.left.query_state()) == queue_pair_state::ready_to_send);
  }
}

TEST_CASE("UC: a fence is refused even in a batch because there are no reads to wait for") {
  const testbed bed;
  auto pair = connect_both(prepared_of<transport::uc>(bed, bed.left_queue),
                           prepared_of<transport::uc>(bed, bed.right_queue));
  const error single = failure_of(pair.left.post_send({.fenced = true}, {.id = 1}));
  CHECK(single == error_kind::invalid_input);
  CHECK_THAT(single.message(), Catch::Contains("only RC supports fences"));
  const batch_error batched = failure_of(pair.left.post_batch<2>([](auto& batch) {
    batch.post_send({}, {.id = 2});
    batch.post_send({.fenced = true}, {.id = 3});
  }));
  CHECK(batched.accepted() == 0);
  CHECK_THAT(batched.message(), Catch::Contains("only RC supports fences"));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

TEST_CASE("UC: a queue pair can be connected to itself") {
  const testbed bed;
  auto alone = connect_to_itself(left_unreliable(bed));
  buffer<> memory(bed.domain, pattern(64, 6));
  must(alone.post_receive({.elements = memory.scatter(32, 32)}, {.id = 1}));
  must(alone.post_send({.elements = memory.gather(0, 32)}, {.id = 2}));
  for (const work_completion& each : take(bed.left_queue, 2)) CHECK(each.is_success());
  CHECK(
      std::equal(memory.bytes().begin(), memory.bytes().begin() + 32, memory.bytes().begin() + 32));
}
