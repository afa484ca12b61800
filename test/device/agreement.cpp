// SPDX-License-Identifier: Apache-2.0
/// \file
/// The parameters, other than addresses, on which two ends must agree. RC and UC queue pairs check
/// traffic class, service level and path MTU in the handshake. UD queue pairs check traffic class
/// and service level when they create an address handle, which also limits the size of datagrams to
/// the smaller MTU.

#include "datagrams.hpp"
#include "transports.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns the error with which each end refuses the other. Both ends must refuse.
template <transport Transport>
std::array<error, 2> refusals(prepared_queue_pair<Transport> left,
                              prepared_queue_pair<Transport> right) {
  // Encode and decode the endpoints, as if they had been sent over a network.
  const endpoint left_end = must(endpoint::decode(left.endpoint().encode()));
  const endpoint right_end = must(endpoint::decode(right.endpoint().encode()));
  if constexpr (Transport == transport::ud)
    return {failure_of(must(std::move(left).activate()).address_of(right_end)),
            failure_of(must(std::move(right).activate()).address_of(left_end))};
  else
    return {failure_of(std::move(left).handshake(right_end)),
            failure_of(std::move(right).handshake(left_end))};
}

void check_names_both(const std::array<error, 2>& refusals, const std::string& field,
                      const std::string& left, const std::string& right) {
  const std::array<std::string, 2> wanted{field + " differs: local " + left + ", remote " + right,
                                          field + " differs: local " + right + ", remote " + left};
  for (std::size_t i = 0; i < refusals.size(); ++i) {
    INFO(refusals[i]);
    CHECK(refusals[i] == error_kind::mismatch);
    CHECK(refusals[i].native_errno() == 0);
    CHECK_THAT(refusals[i].message(), Catch::Contains(wanted[i]));
  }
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("ends use the traffic class and the service level that either end specifies",
                       "", ((transport Transport), Transport), transport::rc, transport::uc) {
  const testbed bed;
  auto [left, right] = connect_both<Transport>(
      must(builder_of<Transport>(bed, bed.left_queue).traffic_class(104).build()),
      must(builder_of<Transport>(bed, bed.right_queue).service_level(3).build()));
  for (ibv_qp* const each : {left.native_handle(), right.native_handle()}) {
    const ibv_ah_attr address = query(each).attributes.ah_attr;
    // On Ethernet, not every driver returns the service level when a queue pair is queried.
    CHECK((address.sl == 3 || (bed.is_ethernet() && address.sl == 0)));
    if (bed.is_ethernet()) CHECK(address.grh.traffic_class == 104);
  }
  buffer<> outbox(bed.domain, pattern(64, 1));
  buffer<> inbox(bed.domain, 64);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  must(left.post_send({.elements = outbox.gather()}, {.id = 2}));
  take_success(bed.right_queue, 1);
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("UD: a datagram has the traffic class that either end specifies") {
  const testbed bed;
  auto left = must(must(builder_of<transport::ud>(bed, bed.left_queue).build()).activate());
  auto right = must(
      must(builder_of<transport::ud>(bed, bed.right_queue).traffic_class(104).build()).activate());
  const address_handle way = must(left.address_of(right.endpoint()));
  datagram_inbox arriving(bed, right, 1, 16);
  send(bed, left, way.destination(right.number(), test_key), pattern(16, 4));
  const received_datagram datagram = arriving.take();
  CHECK(copy_of(datagram.payload()) == pattern(16, 4));
  if (!datagram.has_global_route()) return;
  // Returns a byte of the datagram's 40-byte network header. An IPv4 header occupies its last 20
  // bytes.
  const auto byte = [&](std::size_t at) {
    return std::to_integer<unsigned>(arriving.memory()[at]);
  };
  const bool is_ipv4 = right.endpoint().address.is_ipv4_mapped();
  CHECK((is_ipv4 ? byte(21) : (byte(0) & 0xf) << 4 | byte(1) >> 4) == 104);
}

TEMPLATE_TEST_CASE_SIG(
    "ends that specify different traffic classes or service levels both report it", "",
    ((transport Transport), Transport), transport::rc, transport::uc, transport::ud) {
  const testbed bed;
  const auto left = builder_of<Transport>(bed, bed.left_queue);
  const auto right = builder_of<Transport>(bed, bed.right_queue);
  check_names_both(refusals<Transport>(must(left.traffic_class(104).build()),
                                       must(right.traffic_class(96).build())),
                   "traffic class", "104", "96");
  check_names_both(refusals<Transport>(must(left.service_level(3).build()),
                                       must(right.service_level(4).build())),
                   "service level", "3", "4");
}

TEMPLATE_TEST_CASE_SIG("ends that request different path MTUs both report it", "",
                       ((transport Transport), Transport), transport::rc, transport::uc) {
  const testbed bed;
  const auto left = builder_of<Transport>(bed, bed.left_queue);
  const auto right = builder_of<Transport>(bed, bed.right_queue);
  check_names_both(
      refusals<Transport>(must(left.path_mtu(512).build()), must(right.path_mtu(256).build())),
      "path MTU in bytes", "512", "256");
  // An end that requests no MTU itself adopts the smaller MTU that the other end requests.
  const auto pair = connect_both<Transport>(must(left.path_mtu(256).build()), must(right.build()));
  CHECK(query(pair.left.native_handle()).attributes.path_mtu == IBV_MTU_256);
  CHECK(query(pair.right.native_handle()).attributes.path_mtu == IBV_MTU_256);
}

TEST_CASE("UD: a datagram holds at most the smaller MTU of both ends") {
  const testbed bed;
  connected_datagram left = must(prepared_of<transport::ud>(bed, bed.left_queue).activate());
  connected_datagram right = must(prepared_of<transport::ud>(bed, bed.right_queue).activate());
  const path_mtu own = bed.port.active_mtu();
  const path_mtu smaller = GENERATE(path_mtu(256), path_mtu(512), path_mtu(4096));
  endpoint remote = right.endpoint();
  // Changes the endpoint so that the peer's port seems to have this MTU.
  remote.mtu = smaller;
  address_handle way = must(left.address_of(must(endpoint::decode(remote.encode()))));
  const std::uint32_t most = static_cast<std::uint32_t>((smaller < own ? smaller : own).bytes());
  const auto to = way.destination(right.number(), test_key);
  CHECK(to.most_bytes() == most);

  datagram_inbox arriving(bed, right, 1, most);
  const buffer<> outbox(bed.domain, pattern(most + 1, 1));
  const error refused = failure_of(left.post_send({.elements = outbox.gather(), .to = to}));
  INFO(refused);
  CHECK(refused == error_kind::invalid_input);
  CHECK_THAT(refused.message(), Catch::Contains(std::to_string(most + 1)) &&
                                    Catch::Contains(std::to_string(most)) &&
                                    Catch::Contains("MTU"));
  // The same data in two elements.
  const gather_element first_half = outbox.gather(0, most / 2);
  const gather_element second_half = outbox.gather(most / 2, most - most / 2 + 1);
  const std::array<gather_element, 2> too_long{first_half, second_half};
  CHECK(failure_of(left.post_send({.elements = too_long, .to = to})) == error_kind::invalid_input);

  send(bed, left, to, pattern(most, 2));
  CHECK(copy_of(arriving.take().payload()) == pattern(most, 2));

  way.limit_datagrams(256);
  CHECK(way.destination(right.number(), test_key).most_bytes() == 256);
  const address_handle moved = std::move(way);
  CHECK(moved.destination_group(test_key).most_bytes() == 256);
}
