// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "failing_verb.hpp"
#include "transports.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns a queue pair number that was in use on this device, but no longer is.
queue_pair_number number_of_nobody(const testbed& bed) {
  return must(bed.right().build()).number();
}

/// Returns the error of a handshake with `remote`, which the library must detect without calling
/// the device.
error refused_before_the_device(const testbed& bed, const endpoint& remote) {
  const error e = failure_of(must(bed.left().build()).handshake(remote));
  CHECK(e.native_errno() == 0);
  return e;
}

/// Sends one message in each direction.
void check_traffic(const testbed& bed, connected& left, connected& right) {
  buffer<> outbox(bed.domain, pattern(64, 1));
  buffer<> inbox(bed.domain, 64);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  must(left.post_send({.elements = outbox.gather()}, {.id = 2}));
  take_success(bed.left_queue, 2);
  CHECK(take_success(bed.right_queue, 1).byte_count() == 64U);
  CHECK(inbox.bytes() == outbox.bytes());
  std::ranges::fill(inbox.content(), std::byte{0});
  must(left.post_receive({.elements = inbox.scatter()}, {.id = 3}));
  must(right.post_send({.elements = outbox.gather()}, {.id = 4}));
  take_success(bed.right_queue, 4);
  take_success(bed.left_queue, 3);
  CHECK(inbox.bytes() == outbox.bytes());
}

}  // namespace

TEST_CASE("a handshake connects both ends") {
  const testbed bed;
  prepared first = must(bed.left().build());
  prepared second = must(bed.right().build());
  const endpoint first_end = first.endpoint();
  const endpoint second_end = second.endpoint();
  CHECK(must(first.query_state()) == queue_pair_state::init);
  connected left = must(std::move(first).handshake(second_end));
  connected right = must(std::move(second).handshake(first_end));
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  CHECK(must(right.query_state()) == queue_pair_state::ready_to_send);
  CHECK(left.endpoint() == first_end);
  CHECK(right.endpoint() == second_end);
  check_traffic(bed, left, right);
}

TEST_CASE("a decoded endpoint connects as well") {
  const testbed bed;
  prepared first = must(bed.left().build());
  prepared second = must(bed.right().build());
  const auto first_bytes = first.endpoint().encode();
  const auto second_bytes = second.endpoint().encode();
  connected left = must(std::move(first).handshake(must(endpoint::decode(second_bytes))));
  connected right = must(std::move(second).handshake(must(endpoint::decode(first_bytes))));
  check_traffic(bed, left, right);
}

TEST_CASE("a queue pair can be connected to itself") {
  const testbed bed;
  connected alone = connect_to_itself(must(bed.left().build()));
  buffer<> memory(bed.domain, pattern(200, 3));
  must(alone.post_receive({.elements = memory.scatter(100, 100)}, {.id = 1}));
  must(alone.post_send({.elements = memory.gather(0, 100)}, {.id = 2}));
  std::size_t received = 0;
  for (const work_completion& each : take(bed.left_queue, 2)) {
    CHECK(each.is_success());
    received += each.wr_id() == 1;
  }
  CHECK(received == 1);
  CHECK(std::equal(memory.bytes().begin(), memory.bytes().begin() + 100,
                   memory.bytes().begin() + 100));
}

TEST_CASE("both ends use the smaller of their MTUs") {
  const testbed bed;
  const auto [left, right] =
      connect(must(bed.left().build()), must(bed.right().path_mtu(256).build()));
  CHECK(query(left.native_handle()).attributes.path_mtu == IBV_MTU_256);
  CHECK(query(right.native_handle()).attributes.path_mtu == IBV_MTU_256);
}

TEST_CASE("requesting an MTU larger than the peer's is a mismatch") {
  const testbed bed;
  prepared smaller = must(bed.right().path_mtu(256).build());
  const endpoint of_smaller = smaller.endpoint();
  prepared larger = must(bed.left().path_mtu(512).build());
  const endpoint of_larger = larger.endpoint();
  check_names_both(failure_of(std::move(larger).handshake(of_smaller)), "MTU", "512", "256");
  // The other end accepts no MTU below 512 bytes, so the end that requested 256 bytes fails as
  // well.
  check_names_both(failure_of(std::move(smaller).handshake(of_larger)), "MTU", "256", "512");
}

TEST_CASE("packet sequence numbers can be set and wrap around") {
  const testbed bed;
  // The packet sequence numbers from left to right begin so close to the largest one that they soon
  // wrap around. Each end sets the first of them explicitly.
  auto [left, right] = connect(must(bed.left().send_psn(0xfffffd).build()),
                               must(bed.right().receive_psn(0xfffffd).build()));
  for (int i = 0; i < 8; ++i) check_traffic(bed, left, right);
}

TEST_CASE("an explicit receive PSN takes precedence over the peer's endpoint") {
  const testbed bed;
  prepared pair = must(bed.left().receive_psn(0x111111).build());
  endpoint remote = must(bed.right().build()).endpoint();
  remote.send_psn = 0x222222;
  const connected left = must(std::move(pair).handshake(remote));
  CHECK(query(left.native_handle()).attributes.rq_psn == 0x111111);
}

TEST_CASE("ends of different transports do not connect") {
  const testbed bed;
  endpoint remote = must(bed.right().build()).endpoint();
  remote.type = transport::uc;
  check_names_both(refused_before_the_device(bed, remote), "transport", "RC", "UC");
}

TEST_CASE("ends of different link layers do not connect") {
  const testbed bed;
  endpoint remote = must(bed.right().build()).endpoint();
  remote.link_layer = bed.is_ethernet() ? link_layer::infiniband : link_layer::ethernet;
  check_names_both(refused_before_the_device(bed, remote), "link layer",
                   to_string(bed.port.link_layer()), to_string(remote.link_layer));
}

TEST_CASE("an end whose GID type contradicts its link layer does not connect") {
  const testbed bed;
  endpoint remote = must(bed.right().build()).endpoint();
  if (!bed.is_ethernet()) {
    remote.gid_type = gid_type::roce_v2;
    const error e = refused_before_the_device(bed, remote);
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("GID type"));
    return;
  }
  remote.gid_type = gid_type::infiniband;
  CHECK(refused_before_the_device(bed, remote) == error_kind::invalid_input);
}

TEST_CASE("ends with explicit GID indexes of different RoCE versions do not connect") {
  const testbed bed;
  if (!bed.is_ethernet()) SKIP("InfiniBand has GIDs of one type");
  const gid_table table = must(bed.context.query_gid_table(bed.port.number()));
  const auto index_of = [&](gid_type type) -> std::optional<gid_index> {
    for (const gid_entry& each : table)
      if (each.type == type) return each.index;
    return std::nullopt;
  };
  const auto v1 = index_of(gid_type::roce_v1);
  const auto v2 = index_of(gid_type::roce_v2);
  if (!v1 || !v2) SKIP("the port has only one RoCE version");
  auto left = must(bed.left().gid_index(*v2).build());
  const endpoint remote = must(bed.right().gid_index(*v1).build()).endpoint();
  CHECK(remote.addresses.size() == 1);
  const error e = failure_of(std::move(left).handshake(remote));
  CHECK(e.native_errno() == 0);
  check_names_both(e, "GID type", "RoCE v2", "RoCE v1");
}

TEST_CASE("an end with an explicit GID index is reached at the address with this index") {
  const testbed bed;
  if (!bed.is_ethernet()) SKIP("InfiniBand ports have one address");
  const address_offer offered = must(bed.left().build()).endpoint().addresses;
  REQUIRE_FALSE(offered.empty());
  for (const offered_address& each : offered) {
    INFO(each);
    auto by_hand = must(bed.left().gid_index(each.index).build());
    auto any = must(bed.right().build());
    const endpoint left_end = by_hand.endpoint();
    const endpoint right_end = any.endpoint();
    auto left = must(std::move(by_hand).handshake(right_end));
    auto right = must(std::move(any).handshake(left_end));
    CHECK(left.endpoint().address == each.address);
    CHECK(right.endpoint().gid_type == each.type);
    const auto [attributes, initial] = query(right.native_handle());
    CHECK(gid::from_native(attributes.ah_attr.grh.dgid) == each.address);
    check_traffic(bed, left, right);
  }
}

TEST_CASE("an end without an address does not connect") {
  const testbed bed;
  endpoint remote = must(bed.right().build()).endpoint();
  if (bed.is_ethernet())
    remote.address = gid{};
  else
    remote.lid = 0;
  const error e = refused_before_the_device(bed, remote);
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains(bed.is_ethernet() ? "GID" : "LID"));
}

TEST_CASE("an invalid queue pair number is refused") {
  const testbed bed;
  endpoint remote = must(bed.right().build()).endpoint();
  for (const queue_pair_number number :
       {queue_pair_number(0), queue_pair_number(1), queue_pair_number(0xffffff)}) {
    remote.number = number;
    CHECK(refused_before_the_device(bed, remote) == error_kind::invalid_input);
  }
}

TEST_CASE("an unused address is detected by the handshake or by the first send") {
  const testbed bed;
  prepared pair = must(bed.left().ack_timeout(14).ack_retry_count(1).build());
  const endpoint remote = at_address_of_nobody(bed, must(bed.right().build()).endpoint());
  auto outcome = std::move(pair).handshake(remote);
  if (!outcome.has_value()) {
    const error& e = outcome.error();
    INFO(e);
    // The cause depends on the network: either no reply was received, or there is no route.
    CHECK(std::string(e.operation()) == "modify INIT -> RTR");
    CHECK(e.native_errno() != 0);
    REQUIRE(e.hint() != nullptr);
    CHECK_THAT(e.hint(), Catch::Contains("resolve"));
    if (e.native_errno() == ETIMEDOUT) CHECK(e == error_kind::timed_out);
    return;
  }
  // The handshake may also succeed: InfiniBand does not resolve addresses, and without ARP, an
  // interface considers every address resolved.
  connected left = std::move(outcome).assume_value();
  must(left.post_send({}, {.id = 1}));
  CHECK(status_of(take_one(bed.left_queue)) == work_status::retry_exceeded);
}

TEST_CASE("an unused queue pair number is detected by the first send") {
  const testbed bed;
  prepared pair = must(bed.left().ack_timeout(14).ack_retry_count(1).build());
  endpoint remote = must(bed.right().build()).endpoint();
  remote.number = number_of_nobody(bed);
  connected left = must(std::move(pair).handshake(remote));
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  must(left.post_send({}, {.id = 7}));
  const work_completion completion = take_one(bed.left_queue);
  const work_error failed = failure_of(completion.get());
  CHECK(failed.status() == work_status::retry_exceeded);
  CHECK(failed.error_class() == work_error_class::timeout);
  CHECK(failed.wr_id() == 7);
  CHECK(failed.queue_pair_number() == left.number());
  wait_for_error_state(left);
}

TEST_CASE("a failed handshake leaves nothing behind") {
  release_watch watch;
  {
    std::optional<context> opened = must(open_device(device_name()));
    std::optional<protection_domain> domain = must(protection_domain::allocate(*opened));
    const completion_queue queue = must(completion_queue::create(*opened, 16));
    std::vector<std::byte> memory(64);
    auto region = must(register_memory<access::local_write>(*domain, memory));
    prepared pair = must(build_queue_pair<transport::rc>()
                             .protection_domain(*domain)
                             .completion_queue(queue)
                             .access(access::local_write)
                             .build());
    const scatter_element into = must(region.scatter());
    for (std::uint64_t id = 0; id < 4; ++id)
      must(pair.post_receive({.elements = into}, {.id = id}));
    endpoint remote = pair.endpoint();
    remote.type = transport::uc;
    CHECK(failure_of(std::move(pair).handshake(remote)) == error_kind::mismatch);

    // The queue pair has been destroyed, so it cannot access the memory, and its receives do not
    // complete.
    CHECK(count_within_a_moment(queue) == 0);
    CHECK_NOTHROW(must(std::move(region).deregister()));
    // If the queue pair still existed, the domain and the queue could not be released, and `watch`
    // would count these failures.
    domain.reset();
    opened.reset();
  }
  CHECK(watch.failures() == 0);
}

TEST_CASE("a handshake of a moved-from queue pair returns an error") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  prepared taken = std::move(pair);
  const endpoint end = taken.endpoint();
  const error e = failure_of(std::move(pair).handshake(end));  // NOLINT(bugprone-use-after-move)
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("moved from"));
  std::ostringstream text;
  text << pair;
  CHECK_THAT(text.str(), Catch::Contains("moved from"));
  // The target of the move is unaffected.
  CHECK_NOTHROW(must(std::move(taken).handshake(end)));
}

TEST_CASE("receives posted before the handshake get the first messages in order") {
  const testbed bed;
  buffer<> inbox(bed.domain, 3 * 32);
  buffer<> outbox(bed.domain, pattern(3 * 32, 9));
  prepared first = must(bed.left().build());
  prepared second = must(bed.right().build());
  for (std::size_t i = 0; i < 3; ++i)
    must(second.post_receive({.elements = inbox.scatter(i * 32, 32)}, {.id = i}));
  auto [left, right] = connect(std::move(first), std::move(second));
  for (std::size_t i = 0; i < 3; ++i)
    must(left.post_send({.elements = outbox.gather(i * 32, 32)}, {.id = i}));
  for (std::size_t i = 0; i < 3; ++i) {
    take_success(bed.left_queue, i);
    CHECK(take_success(bed.right_queue, i).byte_count() == 32U);
  }
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("receives of a prepared queue pair stay posted") {
  const testbed bed;
  buffer<> inbox(bed.domain, 32);
  prepared pair = must(bed.left().build());
  must(pair.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
  CHECK(must(pair.query_state()) == queue_pair_state::init);
}

TEST_CASE_METHOD(two_queue_pairs, "the queried state follows the device to ERR") {
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  move_to_error(left.native_handle());
  CHECK(must(left.query_state()) == queue_pair_state::error);
  CHECK(must(right.query_state()) == queue_pair_state::ready_to_send);
}

TEST_CASE("the error for an unreachable peer reports the problem with the route to its address") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  endpoint remote = pair.endpoint();
  if (remote.addresses.empty() ||
      remote.addresses[0].prefix_length == offered_address::unknown_prefix)
    SKIP("the addresses of this device do not belong to a network interface");
  // This address is reserved for documentation, so the host has only a default route to it, or
  // none.
  remote.address = gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 77}};
  remote.addresses = {};
  const failing_verb unreachable("ibv_modify_qp", ETIMEDOUT);
  const error e = failure_of(std::move(pair).handshake(remote));
  INFO(e);
  CHECK(e == error_kind::timed_out);
  CHECK_THAT(e.message(), Catch::Contains("ip route get"));
}

TEMPLATE_TEST_CASE_SIG("the error for an unreachable peer names addresses that might not match", "",
                       ((transport Transport), Transport), transport::rc, transport::ud) {
  const testbed bed;
  auto prepared = prepared_of<Transport>(bed, bed.left_queue);
  endpoint remote = prepared.endpoint();
  const auto is_link_local = [](const offered_address& each) {
    return each.address.bytes[0] == 0xfe && each.address.bytes[1] == 0x80 &&
           each.type == gid_type::roce_v2;
  };
  const auto* const own = std::ranges::find_if(remote.addresses, is_link_local);
  if (own == remote.addresses.end() || remote.addresses.size() < 2)
    SKIP("the device has no link-local address or no other address");
  // The peer has a link-local and a global address. This port may have no address that suits the
  // global one.
  const gid theirs{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0x77}};
  const gid wider{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const std::string pair = to_string(theirs) + " cannot be reached from " + to_string(own->address);
  const address_offer ours = remote.addresses;
  remote.address = theirs;
  remote.addresses = {};
  remote.addresses.add({.address = theirs, .prefix_length = 64});
  remote.addresses.add({.address = wider, .prefix_length = 64});
  if (!must(choose_addresses(ours, remote.addresses)).is_doubtful)
    SKIP("the device has a suitable address");

  const auto failed = [&] {
    if constexpr (Transport == transport::ud) {
      const auto active = must(std::move(prepared).activate());
      const failing_verb unreachable("ibv_create_ah", EHOSTUNREACH);
      return failure_of(active.address_of(remote));
    } else {
      const failing_verb unreachable("ibv_modify_qp", EHOSTUNREACH);
      return failure_of(std::move(prepared).handshake(remote));
    }
  }();
  INFO(failed);
  CHECK(failed.native_errno() == EHOSTUNREACH);
  CHECK_THAT(failed.message(),
             Catch::Contains(pair) && Catch::Contains("link-local") && Catch::Contains("router"));
}
