// SPDX-License-Identifier: Apache-2.0
/// \file
/// Datagram services that are found by IP address, and multicast groups.

#include "../device/datagrams.hpp"

#include "cm_bed.hpp"

#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

connected_datagram serving(const testbed& bed, const completion_queue& queue,
                           queue_key key = cm_datagram_key) {
  return must(must(build_queue_pair<transport::ud>()
                       .protection_domain(bed.domain)
                       .completion_queue(queue)
                       .qkey(key)
                       .build())
                  .activate());
}

struct service {
  cm_bed bed{};
  cm_datagram_listener listener = must(cm_datagram_listener::open(bed.listener.address()));

  [[nodiscard]] cm_datagram_route route() const {
    return must(cm_datagram_route::resolve(listener.address(), patience));
  }
};

}  // namespace

TEST_CASE("a datagram service is found by its address and receives datagrams") {
  service there;
  const testbed& device = there.bed.device;
  connected_datagram server = serving(device, device.right_queue);
  connected_datagram client = serving(device, device.left_queue);

  std::optional<result<cm_datagram_peer>> found;
  cm_datagram_route route = there.route();
  CHECK(route.port() == device.port.number());
  std::thread asking([&] { found.emplace(std::move(route).look_up(patience, std::uint32_t{17})); });
  auto request = there.listener.accept(patience);
  const auto answered = request.has_value()
                            ? std::move(request).value().answer(server, std::uint32_t{18})
                            : result<void>(request.error());
  asking.join();
  must(answered);
  const cm_datagram_peer peer = must(*found);
  CHECK(peer.number == server.endpoint().number);
  CHECK(peer.key == cm_datagram_key);
  CHECK(must(peer.data.as<std::uint32_t>()) == 18);

  test::datagram_inbox into(device, server, 1, 8);
  const address_handle way = must(peer.address(device.domain));
  const auto payload = pattern(8, 1);
  send(device, client, way.destination(peer.number, peer.key), payload);
  CHECK(copy_of(into.take().payload()) == payload);
}

TEST_CASE("looking up a datagram service reports a missing listener and a rejection") {
  service there;
  SECTION("a missing listener") {
    const cm_address silent = there.listener.address();
    there.listener = must(cm_datagram_listener::open(silent.with_port(0)));
    const error e =
        failure_of(must(cm_datagram_route::resolve(silent, patience)).look_up(patience));
    INFO(e);
    CHECK(e == error_kind::not_connected);
  }
  SECTION("a rejection") {
    std::optional<result<cm_datagram_peer>> found;
    cm_datagram_route route = there.route();
    std::thread asking([&] { found.emplace(std::move(route).look_up(patience)); });
    auto request = there.listener.accept(patience);
    const bool is_rejected = request.has_value() && std::move(request).value().reject().has_value();
    asking.join();
    CHECK(is_rejected);
    CHECK(failure_of(*found) == error_kind::not_connected);
  }
}

TEST_CASE("a lookup of a datagram service that does not answer times out") {
  service there;
  CHECK(failure_of(there.route().look_up(short_limit)) == error_kind::timed_out);
  CHECK(failure_of(cm_datagram_route::resolve(cm_address(), patience)) ==
        error_kind::invalid_input);
}

TEST_CASE("an address handle for a datagram service needs a protection domain") {
  const cm_bed bed;
  const cm_datagram_peer peer{};
  protection_domain domain = bed.device.domain;
  const protection_domain taken = std::move(domain);
  CHECK(failure_of(peer.address(domain)) == error_kind::invalid_input);
}

TEST_CASE("a datagram service must have the connection manager's queue key") {
  service there;
  const testbed& device = there.bed.device;
  const connected_datagram other = serving(device, device.left_queue, test_key);
  std::optional<result<cm_datagram_peer>> found;
  cm_datagram_route route = there.route();
  std::thread asking([&] { found.emplace(std::move(route).look_up(short_limit)); });
  auto request = there.listener.accept(patience);
  const auto answered = request.has_value() ? std::move(request).value().answer(other)
                                            : result<void>(request.error());
  asking.join();
  CHECK(failure_of(answered) == error_kind::mismatch);
}

TEST_CASE("a multicast group can be joined by its address and its datagrams arrive") {
  const cm_bed bed;
  const testbed& device = bed.device;
  // The group's address depends on the process, because tests that run at the same time must use
  // different groups.
  const auto process = static_cast<unsigned>(::getpid());
  const std::string own = "239." + std::to_string(process >> 16 & 0xff) + '.' +
                          std::to_string(process >> 8 & 0xff) + '.' +
                          std::to_string(process & 0xff);
  const cm_address group = must(cm_address::from(own, 0));
  const cm_address local = bed.listener.address().with_port(0);
  const cm_multicast joined = must(cm_multicast::join(group, local, patience));
  CHECK(joined.group().is_multicast());
  CHECK(joined.port() == device.port.number());

  connected_datagram member = serving(device, device.right_queue, joined.key());
  connected_datagram sender = serving(device, device.left_queue, joined.key());
  must(member.join_multicast(joined.group(), joined.multicast_lid()));
  test::datagram_inbox into(device, member, 1, 8);
  const address_handle way = must(joined.address(device.domain));
  const auto payload = pattern(8, 2);
  send(device, sender, way.destination_group(joined.key()), payload);
  CHECK(copy_of(into.take().payload()) == payload);
  must(member.leave_multicast(joined.group(), joined.multicast_lid()));
}

TEST_CASE("a multicast group can be joined again while it is joined") {
  const cm_bed bed;
  // steady: nothing is sent to this fixed group, so other members are not affected
  const cm_address group = must(cm_address::from("239.77.0.2", 0));
  const cm_address local = bed.listener.address().with_port(0);
  cm_multicast joined = must(cm_multicast::join(group, local, patience));
  joined = must(cm_multicast::join(group, local, patience));
  const cm_multicast moved = std::move(joined);
  CHECK(moved.group().is_multicast());
  CHECK(failure_of(cm_multicast::join(cm_address(), local, patience)) == error_kind::invalid_input);
  const cm_address elsewhere = must(cm_address::from("192.0.2.1", 0));
  CHECK(failure_of(cm_multicast::join(group, elsewhere, patience)) == error_kind::not_found);
}
