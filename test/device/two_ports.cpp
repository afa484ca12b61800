// SPDX-License-Identifier: Apache-2.0
/// \file
/// A device with two ports. softverbs creates such a device from two_ports.conf.

#include "device.hpp"
#include "failing_verb.hpp"
#include <verbspp/device/detail/async_listener.hpp>

#include <string>

using namespace verbspp;
using namespace verbspp::test;

namespace {

bool has_second_port(const testbed& bed) { return bed.limits.phys_port_cnt >= 2; }

constexpr port_number first = 1, second = 2;

/// Connects two queue pairs on this port. The left one has a short ACK timeout.
connected_pair connect_at(const testbed& bed, port_number port) {
  return connect(must(bed.left().port(port).ack_timeout(8).ack_retry_count(1).build()),
                 must(bed.right().port(port).build()));
}

async_event next_event(const testbed& bed) {
  const auto event = must(bed.context.wait_async_event(clock::now() + patience));
  if (!event) throw std::runtime_error("no event arrived");
  return *event;
}

}  // namespace

TEST_CASE("a port that goes down ends only its own connections", "[two ports]") {
  const testbed bed;
  if (!has_second_port(bed)) SKIP("this test needs a device with two ports");
  buffer<> target(bed.domain, 8);
  auto [left, right] = connect_at(bed, first);
  auto [other_left, other_right] = connect_at(bed, second);
  const auto state_of = [&](port_number port) {
    return must(bed.context.query_port(port)).state();
  };
  {
    const failing_device fails(("port-down@" + std::string(device_name()) + "/2").c_str());
    const async_event down = next_event(bed);
    CHECK(down.type() == async_event_type::port_error);
    CHECK(down.port() == second);
    CHECK(state_of(first) == port_state::active);
    CHECK(state_of(second) == port_state::down);

    must(left.post_write({.remote = target.remote()}, {.id = 1}));
    take_success(bed.left_queue, 1);
    must(other_left.post_write({.remote = target.remote()}, {.id = 2}));
    CHECK(status_of(take_one(bed.left_queue)) == work_status::retry_exceeded);
    must(left.post_write({.remote = target.remote()}, {.id = 3}));
    take_success(bed.left_queue, 3);

    must(bed.left().port(first).build());
    CHECK(failure_of(bed.left().port(second).build()) == error_kind::not_found);
  }
  CHECK(state_of(second) == port_state::active);
  auto [next, peer] = connect_at(bed, second);
  must(next.post_write({.remote = target.remote()}, {.id = 4}));
  take_success(bed.left_queue, 4);
}

TEST_CASE("a port that goes down does not notify listeners of the other port", "[two ports]") {
  const testbed bed;
  if (!has_second_port(bed)) SKIP("this test needs a device with two ports");
  detail::async_listener of_first, of_second;
  of_first.listen(bed.context, {.port = 1});
  of_second.listen(bed.context, {.port = 2});
  const std::string both = "port-down@" + std::string(device_name()) + "/2; after:20ms=port-up@" +
                           std::string(device_name()) + "/2";
  const failing_device fails(both.c_str());
  wait_until(
      [&] {
        must(of_second.look());
        return of_second.has_heard();
      },
      "an event of the second port");
  must(of_first.look());
  CHECK_FALSE(of_first.has_heard());
}

TEST_CASE("the ports of one device have their own attributes and addresses", "[two ports]") {
  const testbed bed;
  if (!has_second_port(bed)) SKIP("this test needs a device with two ports");
  const port_attributes one = must(bed.context.query_port(first));
  const port_attributes two = must(bed.context.query_port(second));
  CHECK(one.number() == first);
  CHECK(two.number() == second);
  const auto addresses = must(bed.context.query_gid_table(first));
  for (const gid_entry& each : must(bed.context.query_gid_table(second)))
    for (const gid_entry& of_first : addresses) CHECK(each.address != of_first.address);
  if (one.link_layer() == link_layer::infiniband) CHECK(one.lid() != two.lid());
  if (device_name() != "soft0") return;
  // two_ports.conf contains these values.
  CHECK(one.active_mtu().bytes() == 2048);
  CHECK(two.active_mtu().bytes() == 1024);
}

TEST_CASE("a queue pair that moves to another port offers the addresses of that port",
          "[two ports]") {
  const testbed bed;
  if (!has_second_port(bed)) SKIP("this test needs a device with two ports");
  auto moved = must(bed.left().port(first).gid_index(0).build());
  CHECK(moved.endpoint().is_address_set_by_hand);
  constexpr auto init = queue_pair_state::init;
  must(moved.modify(attributes_for<transport::rc, init, init>().port(second)));
  const endpoint expected = must(bed.right().port(second).build()).endpoint();
  CHECK(moved.endpoint().address == expected.address);
  CHECK(moved.endpoint().addresses == expected.addresses);
  CHECK_FALSE(moved.endpoint().is_address_set_by_hand);
}

TEST_CASE("a device reports its NUMA node", "[two ports]") {
  const testbed bed;
  if (!has_second_port(bed) || device_name() != "soft0")
    SKIP("this test needs the device in two_ports.conf");
  CHECK(must(numa_node_of(bed.context)) == numa_node(1));
  CHECK(must(numa_node_of(must(must(device_list::query()).find(device_name())))) == numa_node(1));
}
