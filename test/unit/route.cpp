// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/device/interface_address.hpp>
#include <verbspp/device/route.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <net/if.h>

#include <chrono>
#include <string>

using namespace verbspp;

namespace {

constexpr gid mapped(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}

void check_invalid(const gid& destination) {
  INFO(destination);
  const auto found = find_route(destination);
  REQUIRE(found.has_error());
  CHECK(found.error() == error_kind::invalid_input);
}

}  // namespace

TEST_CASE("the route to the loopback address starts at the loopback address") {
  const auto found = find_route(mapped(127, 0, 0, 1));
  if (!found.has_value()) SKIP("lo has no address here");
  CHECK(found.value().source == mapped(127, 0, 0, 1));
  CHECK(found.value().interface_index == ::if_nametoindex("lo"));
}

TEST_CASE("the route to an address of this host starts at that address") {
  const auto interfaces = interface_table::query();
  REQUIRE(interfaces.has_value());
  for (const interface_address& each : interfaces.value()) {
    if (each.address.is_link_local() || !each.is_up) continue;
    INFO(each.address);
    const auto found = find_route(each.address);
    REQUIRE(found.has_value());
    CHECK(found.value().source == each.address);
  }
}

TEST_CASE("an address that cannot have a route is refused as invalid") {
  check_invalid(gid{});
  check_invalid(mapped(0, 0, 0, 0));
  check_invalid(mapped(224, 0, 0, 1));
  check_invalid(gid{{0xff, 0x02}});
  check_invalid(
      gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}});  // no interface is specified
}

TEST_CASE("no device has a port with the loopback address") {
  const auto found = open_device_towards(mapped(127, 0, 0, 1));
  REQUIRE(found.has_error());
  INFO(found.error());
  CHECK_FALSE(found.error().message().empty());
}

TEST_CASE("a socket returns its peer's address") {
  const auto listener = tcp_listener::open("0", "127.0.0.1");
  REQUIRE(listener.has_value());
  const auto port = std::to_string(listener.value().port());
  const auto socket = tcp_socket::connect("127.0.0.1", port, std::chrono::seconds(10));
  REQUIRE(socket.has_value());
  const auto peer = socket.value().peer_address();
  REQUIRE(peer.has_value());
  CHECK(peer.value() == mapped(127, 0, 0, 1));
  CHECK(tcp_socket().peer_address().error() == error_kind::not_connected);
}
