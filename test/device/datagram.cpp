// SPDX-License-Identifier: Apache-2.0
/// \file
/// UD queue pairs, which exchange datagrams with any peer, and the address handles that they
/// need.

#include "datagrams.hpp"

#include <array>
#include <optional>
#include <sstream>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Checks the addresses in a received datagram that the port has sent to itself.
void check_addresses(const testbed& bed, const received_datagram& datagram, const endpoint& from,
                     const endpoint& to) {
  CHECK(datagram.source() == from.number);
  if (bed.is_ethernet()) {
    CHECK(datagram.has_global_route());
    CHECK(datagram.source_address() == from.address);
    CHECK(datagram.destination_address() == to.address);
  } else {
    CHECK(datagram.source_lid() == from.lid);
    CHECK_FALSE(datagram.has_global_route());
    CHECK_FALSE(datagram.source_address());
  }
}

}  // namespace

TEST_CASE_METHOD(
    two_datagram_ends,
    "UD: a datagram reaches the queue pair of an endpoint with its payload after 40 bytes") {
  CHECK(right.endpoint().qkey == test_key);
  const address_handle way = must(left.address_of(right.endpoint()));
  const auto to = way.destination(right.number(), right.endpoint().qkey);
  const std::size_t mtu = bed.port.active_mtu().bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, mtu - 1, mtu}) {
    INFO(size << " bytes");
    const auto payload = pattern(size, 1);
    datagram_inbox arriving(bed, right, 5, size + 1);
    if (size == 0) {
      must(left.post_send({.to = to}, {.id = 6}));
      take_success(bed.left_queue, 6);
    } else {
      send(bed, left, to, payload);
    }
    const received_datagram datagram = arriving.take();
    CHECK(datagram.native().byte_len == header + size);
    CHECK(copy_of(datagram.payload()) == payload);
    CHECK(datagram.payload().data() == arriving.memory().data() + header);
    CHECK_FALSE(datagram.immediate());
    CHECK(arriving.memory()[header + size] == std::byte{0xee});
    check_addresses(bed, datagram, left.endpoint(), right.endpoint());
  }
}

TEST_CASE_METHOD(two_datagram_ends,
                 "UD: the receiver of a datagram can reply without further information") {
  datagram_inbox question(bed, right, 1, 64);
  datagram_inbox answer(bed, left, 2, 64);
  send(bed, left, way.destination(right.number(), test_key), pattern(20, 2));
  const received_datagram asked = question.take();
  const address_handle back =
      must(address_handle::create_reply(bed.domain, bed.port.number(), asked));
  send(bed, right, back.destination(asked.source(), test_key), pattern(30, 3));
  const received_datagram answered = answer.take();
  CHECK(copy_of(answered.payload()) == pattern(30, 3));
  check_addresses(bed, answered, right.endpoint(), left.endpoint());
}

TEST_CASE("UD: the sender's GID is the source address for each GID of the port") {
  const testbed bed;
  for (const gid_entry& entry : must(bed.context.query_gid_table(bed.port.number()))) {
    INFO("GID " << entry.address << ", " << to_string(entry.type));
    const auto build = [&](const completion_queue& queue) {
      return must(
          must(builder_of<transport::ud>(bed, queue).gid_index(entry.index).build()).activate());
    };
    auto left = build(bed.left_queue);
    auto right = build(bed.right_queue);
    const global_route route{.destination = entry.address, .source = entry.index};
    const path with_route =
        bed.is_ethernet()
            ? path(roce_path{.route = route})
            : path(infiniband_path{.destination = right.endpoint().lid, .route = route});
    const address_handle way =
        must(address_handle::create(bed.domain, bed.port.number(), with_route));
    datagram_inbox arriving(bed, right, 1, 16);
    send(bed, left, way.destination(right.number(), test_key), pattern(16, 4));
    const received_datagram datagram = arriving.take();
    CHECK(datagram.has_global_route());
    CHECK(datagram.source_address() == entry.address);
    CHECK(datagram.destination_address() == entry.address);
    CHECK(datagram.source() == left.number());
    // The reply has to be sent from the GID to which the datagram was addressed.
    const address_handle back =
        must(address_handle::create_reply(bed.domain, bed.port.number(), datagram));
    datagram_inbox returning(bed, left, 2, 16);
    send(bed, right, back.destination(datagram.source(), test_key), pattern(16, 5));
    CHECK(returning.take().source_address() == entry.address);
  }
}

TEST_CASE_METHOD(two_datagram_ends, "UD: immediate data arrives with and without a payload") {
  const auto to = way.destination(right.number(), test_key);
  datagram_inbox with_payload(bed, right, 1, 16);
  send(bed, left, to, pattern(16, 6), immediate_data(0x01020304));
  const received_datagram datagram = with_payload.take();
  CHECK(datagram.immediate() == immediate_data(0x01020304));
  CHECK(datagram.payload().size() == 16);
  datagram_inbox without(bed, right, 2, 0);
  must(left.post_send({.to = to, .immediate = immediate_data(0xfffffffe)}, {.id = 3}));
  take_success(bed.left_queue, 3);
  const received_datagram empty = without.take();
  CHECK(empty.immediate() == immediate_data(0xfffffffe));
  CHECK(empty.payload().empty());
}

TEST_CASE_METHOD(two_datagram_ends,
                 "UD: a datagram is gathered from elements, and its header and payload are "
                 "scattered over elements") {
  buffer<> outbox(bed.domain, pattern(50, 7));
  buffer<> arriving(bed.domain, 200);
  const std::array into{arriving.scatter(0, header), arriving.scatter(100, 30),
                        arriving.scatter(150, 50)};
  must(right.post_receive({.elements = into}, {.id = 1}));
  const std::array from{outbox.gather(0, 20), outbox.gather(20, 30)};
  must(left.post_send({.elements = from, .to = way.destination(right.number(), test_key)},
                      {.id = 2}));
  take_success(bed.left_queue, 2);
  CHECK(take_success(bed.right_queue, 1).byte_count() == header + 50);
  const std::span<const std::byte> arrived(arriving.bytes());
  const std::span<const std::byte> sent(outbox.bytes());
  CHECK(std::ranges::equal(arrived.subspan(100, 30), sent.first(30)));
  CHECK(std::ranges::equal(arrived.subspan(150, 20), sent.last(20)));
}

TEST_CASE("UD: one receiver distinguishes several senders") {
  const testbed bed;
  auto receiver = right_of(bed);
  std::vector<connected_datagram> senders;
  std::vector<address_handle> ways;
  std::vector<datagram_inbox> arriving;
  constexpr unsigned rounds = 4;
  for (unsigned i = 0; i < 3; ++i) {
    senders.push_back(left_of(bed));
    ways.push_back(must(senders.back().address_of(receiver.endpoint())));
  }
  for (std::uint64_t id = 0; id < rounds * senders.size(); ++id)
    arriving.emplace_back(bed, receiver, id, 8);
  for (unsigned round = 0; round < rounds; ++round)
    for (unsigned i = 0; i < senders.size(); ++i)
      send(bed, senders[i], ways[i].destination(receiver.number(), test_key), pattern(8, 100 + i));
  std::array<unsigned, 3> counts{};
  for (datagram_inbox& each : arriving) {
    const received_datagram datagram = each.take();
    for (unsigned i = 0; i < senders.size(); ++i) {
      if (datagram.source() != senders[i].number()) continue;
      ++counts[i];
      CHECK(copy_of(datagram.payload()) == pattern(8, 100 + i));
    }
  }
  CHECK(counts == std::array<unsigned, 3>{rounds, rounds, rounds});
}

TEST_CASE("UD: one sender reaches several receivers and itself") {
  const testbed bed;
  auto alone = left_of(bed);
  auto other = right_of(bed);
  const address_handle way = must(alone.address_of(alone.endpoint()));
  datagram_inbox own(bed, alone, 1, 8);
  datagram_inbox others(bed, other, 2, 8);
  buffer<> outbox(bed.domain, pattern(8, 8));
  const gather_element from = outbox.gather();
  // The address handle identifies only the port, so it can be used for both queue pairs. The queue
  // pair number selects the receiver.
  must(alone.post_send({.elements = from, .to = way.destination(alone.number(), test_key)},
                       {.id = 3, .signaled = false}));
  must(alone.post_send({.elements = from, .to = way.destination(other.number(), test_key)},
                       {.id = 4, .signaled = false}));
  check_addresses(bed, own.take(), alone.endpoint(), alone.endpoint());
  check_addresses(bed, others.take(), alone.endpoint(), other.endpoint());
}

TEST_CASE_METHOD(two_datagram_ends, "UD: only datagrams that cannot be received are lost") {
  const auto good = way.destination(right.number(), test_key);
  std::optional<datagram_inbox> arriving;
  SECTION("a wrong queue key") {
    arriving.emplace(bed, right, 1, 16);
    send(bed, left, way.destination(right.number(), 0x11111112), pattern(16, 9));
  }
  SECTION("no receive") {
    send(bed, left, good, pattern(16, 9));
    CHECK(count_within_a_moment(bed.right_queue) == 0);
    arriving.emplace(bed, right, 1, 16);
  }
  SECTION("an unused queue pair number") {
    arriving.emplace(bed, right, 1, 16);
    send(bed, left, way.destination(right_of(bed).number(), test_key), pattern(16, 9));
  }
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  CHECK(must(right.query_state()) == queue_pair_state::ready_to_send);
  send(bed, left, good, pattern(16, 10));
  CHECK(copy_of(arriving->take().payload()) == pattern(16, 10));
}

TEST_CASE_METHOD(two_datagram_ends, "UD: a changed queue key takes effect") {
  must(right.modify(attributes_for<transport::ud, queue_pair_state::ready_to_send,
                                   queue_pair_state::ready_to_send>()
                        .qkey(0x22222222)));
  CHECK(right.endpoint().qkey == queue_key(0x22222222));
  const address_handle way = must(left.address_of(right.endpoint()));
  datagram_inbox arriving(bed, right, 1, 16);
  send(bed, left, way.destination(right.number(), test_key), pattern(16, 11));
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  send(bed, left, way.destination(right.number(), right.endpoint().qkey), pattern(16, 12));
  CHECK(copy_of(arriving.take().payload()) == pattern(16, 12));
}

TEST_CASE("UD: a privileged queue key requires the right to open raw sockets") {
  const testbed bed;
  auto outcome = build_queue_pair<transport::ud>()
                     .protection_domain(bed.domain)
                     .completion_queue(bed.right_queue)
                     .qkey(0x80000001)
                     .build();
  if (!outcome.has_value()) {
    CHECK(outcome.error() == error_kind::permission);
    CHECK_THAT(outcome.error().message(),
               Catch::Contains("modify RESET -> INIT") && Catch::Contains("CAP_NET_RAW"));
    return;
  }
  // The queue pair could be built, so this process may use this queue key.
  auto right = must(std::move(outcome).assume_value().activate());
  CHECK(right.endpoint().qkey == queue_key(0x80000001));
  auto left = must(must(build_queue_pair<transport::ud>()
                            .protection_domain(bed.domain)
                            .completion_queue(bed.left_queue)
                            .qkey(0x80000001)
                            .build())
                       .activate());
  const address_handle way = must(left.address_of(right.endpoint()));
  datagram_inbox arriving(bed, right, 1, 16);
  send(bed, left, way.destination(right.number(), 0x80000001), pattern(16, 13));
  CHECK(copy_of(arriving.take().payload()) == pattern(16, 13));
}

TEST_CASE("UD: a receive without room for the header is refused before the driver is called") {
  const testbed bed;
  auto right = right_of(bed);
  buffer<> memory(bed.domain, 64);
  for (const std::size_t size : {0U, 1U, 39U}) {
    const error e =
        failure_of(right.post_receive({.elements = memory.scatter(0, size)}, {.id = 1}));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("40 or more"));
  }
  CHECK(failure_of(right.post_receive({}, {.id = 1})) == error_kind::invalid_input);
  must(right.post_receive({.elements = memory.scatter(0, 40)}, {.id = 2}));
  const std::array split{memory.scatter(0, 39), memory.scatter(39, 1)};
  must(right.post_receive({.elements = split}, {.id = 3}));
}

TEST_CASE_METHOD(two_datagram_ends,
                 "UD: a datagram longer than its receive fails at the receiver only") {
  datagram_inbox arriving(bed, right, 1, 15);
  send(bed, left, way.destination(right.number(), test_key), pattern(16, 14));
  // The rxe driver in Linux 6.1 reports a different error, namely that the receive request was
  // malformed.
  const work_completion receive = take_one(bed.right_queue);
  CHECK(is_one_of(status_of(receive), {work_status::local_length_error,
                                       work_status::local_queue_pair_operation_error}));
  CHECK(received_datagram::from(receive, arriving.memory()).error().wr_id() == 1);
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
}

TEST_CASE_METHOD(two_datagram_ends, "UD: a datagram longer than the MTU does not arrive") {
  // This address handle was created from a path, which does not contain the peer's MTU.
  const address_handle way = must(
      address_handle::create(bed.domain, bed.port.number(), must(left.path_to(right.endpoint()))));
  const std::size_t size = bed.port.active_mtu().bytes() + 1;
  datagram_inbox arriving(bed, right, 1, 2 * size);
  buffer<> outbox(bed.domain, size);
  const gather_element from = outbox.gather();
  const auto to = way.destination(right.number(), test_key);
  CHECK(to.most_bytes() == datagram_destination::unknown_size);
  // There are three possible outcomes: the call returns an error, the request completes with an
  // error, or the datagram is lost silently, which happens with Linux's rxe.
  if (left.post_send({.elements = from, .to = to}, {.id = 2}).has_value()) {
    const work_completion sent = take_one(bed.left_queue);
    CHECK(is_one_of(status_of(sent), {work_status::local_length_error, work_status::success}));
  }
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}

TEST_CASE("UD: receives posted before the activation get datagrams after it") {
  const testbed bed;
  auto left = left_of(bed);
  auto prepared = prepared_of<transport::ud>(bed, bed.right_queue);
  buffer<> memory(bed.domain, header + 8);
  must(prepared.post_receive({.elements = memory.scatter()}, {.id = 1}));
  const address_handle way = must(left.address_of(prepared.endpoint()));
  const auto to = way.destination(prepared.number(), test_key);
  send(bed, left, to, pattern(8, 15));
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  auto right = must(std::move(prepared).activate());
  send(bed, left, to, pattern(8, 16));
  CHECK(take_success(bed.right_queue, 1).byte_count() == header + 8);
  CHECK(std::vector<std::byte>(memory.bytes().begin() + header, memory.bytes().end()) ==
        pattern(8, 16));
}

TEST_CASE("UD: an address handle for a peer's unsuitable endpoint is refused") {
  const testbed bed;
  auto left = left_of(bed);
  const endpoint good = right_of(bed).endpoint();
  const auto refused = [&](const endpoint& remote, const char* field) {
    const error e = failure_of(left.address_of(remote));
    INFO(e);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains(field));
    return e;
  };
  endpoint remote = good;
  remote.type = transport::rc;
  CHECK(refused(remote, "transport") == error_kind::mismatch);
  remote = good;
  remote.link_layer = bed.is_ethernet() ? link_layer::infiniband : link_layer::ethernet;
  CHECK(refused(remote, "link layer") == error_kind::mismatch);
  remote = good;
  remote.number = multicast_queue_pair_number;
  CHECK(refused(remote, "queue pair number") == error_kind::invalid_input);
  remote = good;
  if (bed.is_ethernet()) {
    remote.address = gid{};
    CHECK(refused(remote, "GID") == error_kind::invalid_input);
  } else {
    remote.lid = 0;
    CHECK(refused(remote, "LID") == error_kind::invalid_input);
  }
  // An endpoint keeps its queue key when it is encoded and decoded.
  CHECK(must(endpoint::decode(good.encode())) == good);
  CHECK_NOTHROW(must(left.address_of(must(endpoint::decode(good.encode())))));
}

TEST_CASE("an address handle for an unused address is refused or its datagrams are lost") {
  const testbed bed;
  auto left = left_of(bed);
  const endpoint remote = at_address_of_nobody(bed, right_of(bed).endpoint());
  const auto outcome = left.address_of(remote);
  if (!outcome.has_value()) {
    const error& e = outcome.error();
    INFO(e);
    CHECK(std::string(e.operation()) == "ibv_create_ah");
    CHECK(e.native_errno() != 0);
    CHECK_THAT(e.message(), Catch::Contains("resolve"));
    if (e.native_errno() == ETIMEDOUT) CHECK(e == error_kind::timed_out);
    return;
  }
  // The call may also succeed: InfiniBand does not resolve addresses, and without ARP, an interface
  // considers every address resolved.
  send(bed, left, outcome.assume_value().destination(remote.number, test_key), pattern(8, 17));
}

TEST_CASE("an address handle requires a port and a complete path of the port's kind") {
  const testbed bed;
  const endpoint self = prepared_of<transport::ud>(bed, bed.left_queue).endpoint();
  const auto refused = [&](const path& way, port_number port) {
    return failure_of(address_handle::create(bed.domain, port, way));
  };
  const global_route route{.destination = self.address};
  const path infiniband = infiniband_path{.destination = 16};
  const path roce = roce_path{.route = route};
  const error other_kind = refused(bed.is_ethernet() ? infiniband : roce, bed.port.number());
  INFO(other_kind);
  CHECK(other_kind == error_kind::mismatch);
  CHECK_THAT(other_kind.message(),
             Catch::Contains("infiniband_path") && Catch::Contains("roce_path"));
  const error incomplete =
      refused(bed.is_ethernet() ? path(roce_path{}) : path(infiniband_path{}), bed.port.number());
  CHECK(incomplete == error_kind::invalid_input);
  CHECK_THAT(incomplete.message(), Catch::Contains(bed.is_ethernet() ? "GID" : "LID"));
  const port_number beyond = must(port_number::from(bed.limits.phys_port_cnt + 1));
  CHECK(refused(bed.is_ethernet() ? roce : infiniband, beyond) == error_kind::invalid_input);
}

TEST_CASE("an address handle with an empty GID index is refused") {
  const testbed bed;
  const endpoint self = prepared_of<transport::ud>(bed, bed.left_queue).endpoint();
  std::optional<gid_index> empty;
  for (unsigned index = 0; index < bed.port.gid_table_length() && index < 256 && !empty; ++index)
    if (!bed.context.query_gid(bed.port.number(), must(gid_index::from(index))).has_value())
      empty = must(gid_index::from(index));
  if (!empty) SKIP("the GID table has no empty entry");
  const global_route route{.destination = self.address, .source = *empty};
  const path way = bed.is_ethernet()
                       ? path(roce_path{.route = route})
                       : path(infiniband_path{.destination = self.lid, .route = route});
  const error e = failure_of(address_handle::create(bed.domain, bed.port.number(), way));
  INFO(e);
  CHECK(std::string(e.operation()) == "ibv_create_ah");
}

TEST_CASE_METHOD(two_datagram_ends,
                 "a reply needs all memory of the receive if the address is in the header") {
  buffer<> memory(bed.domain, header + 8);
  must(right.post_receive({.elements = memory.scatter()}, {.id = 1}));
  send(bed, left, way.destination(right.number(), test_key), pattern(8, 18));
  const work_completion completion = take_one(bed.right_queue);
  const auto datagram =
      must(received_datagram::from(completion, memory.content().first(header - 1)));
  CHECK(datagram.payload().empty());
  CHECK_FALSE(datagram.source_address());
  const auto reply = address_handle::create_reply(bed.domain, bed.port.number(), datagram);
  if (bed.is_ethernet()) {
    REQUIRE(reply.has_error());
    CHECK(reply.error() == error_kind::invalid_input);
    CHECK_THAT(reply.error().message(), Catch::Contains("the first 40 bytes of its memory"));
  } else {
    CHECK(reply.has_value());
  }
}

TEST_CASE("an address handle keeps its protection domain alive and can be moved and printed") {
  const release_watch watch;
  std::optional<testbed> bed(std::in_place);
  auto left = left_of(*bed);
  address_handle first = must(left.address_of(left.endpoint()));
  address_handle second = must(left.address_of(left.endpoint()));
  ibv_ah* const native = first.native_handle();
  second = std::move(first);
  CHECK(second.native_handle() == native);
  std::ostringstream text;
  text << second;
  CHECK_THAT(text.str(),
             Catch::Contains("address handle 0x") && Catch::Contains("device " + device_name()));
  const address_handle third = std::move(second);
  std::ostringstream moved;
  moved << second;  // NOLINT(bugprone-use-after-move)
  CHECK(moved.str() == "address handle, moved from");
  {
    const connected_datagram gone = std::move(left);
  }
  bed.reset();
  CHECK(third.protection_domain().native_handle() != nullptr);
}
