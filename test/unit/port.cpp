// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/device/port.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>

using verbspp::error_kind;
using verbspp::link_layer;
using verbspp::path_mtu;
using verbspp::port_attributes;
using verbspp::port_state;
using verbspp::test::printed;
using verbspp::test::printed_by_a_hex_stream;

namespace {

struct mtu_code {
  std::uint32_t bytes;
  ibv_mtu code;
};

constexpr std::array<mtu_code, 5> mtus{{{256, IBV_MTU_256},
                                        {512, IBV_MTU_512},
                                        {1024, IBV_MTU_1024},
                                        {2048, IBV_MTU_2048},
                                        {4096, IBV_MTU_4096}}};

ibv_port_attr some_port() {
  ibv_port_attr native{};
  native.state = IBV_PORT_ACTIVE;
  native.max_mtu = IBV_MTU_4096;
  native.active_mtu = IBV_MTU_1024;
  native.gid_tbl_len = 256;
  native.pkey_tbl_len = 128;
  native.lid = 0x8001;
  native.link_layer = IBV_LINK_LAYER_INFINIBAND;
  return native;
}

}  // namespace

TEST_CASE("a path MTU is one of the five sizes") {
  for (const auto& [bytes, code] : mtus) {
    CAPTURE(bytes);
    REQUIRE(path_mtu::from(bytes).has_value());
    CHECK(path_mtu::from(bytes).value().bytes() == bytes);
    CHECK(path_mtu::from(bytes).value().native() == code);
    REQUIRE(path_mtu::from_code(code).has_value());
    CHECK(path_mtu::from_code(code).value().bytes() == bytes);
  }
}

TEST_CASE("every other number of bytes is refused as a path MTU") {
  int taken = 0;
  for (int bytes = -5000; bytes < 20000; ++bytes) taken += path_mtu::from(bytes).has_value();
  CHECK(taken == 5);
  CHECK(path_mtu::from((std::uint64_t{1} << 32) + 256).has_error());
  CHECK(path_mtu::from(std::numeric_limits<std::int64_t>::min()).has_error());
  CHECK(path_mtu::from(1000).error() == error_kind::invalid_input);
  CHECK(path_mtu::from(1000).error().message() ==
        "parameter: path MTU (256, 512, 1024, 2048 or 4096 bytes): 1000 is out of range");
}

TEST_CASE("every other code is refused as a path MTU") {
  for (const unsigned code : {0U, 6U, 255U, 257U, 0x80000001U, 0xffffffffU})
    CHECK(path_mtu::from_code(code).error() == error_kind::invalid_input);
  CHECK(path_mtu::from_code(6).error().message() ==
        "parameter: path MTU code (1..5): 6 is out of range");
}

TEST_CASE("path MTUs are ordered by size and the default is the smallest one") {
  CHECK(path_mtu(256) < path_mtu(512));
  CHECK(path_mtu(4096) > path_mtu(2048));
  CHECK(path_mtu() == path_mtu(256));
}

TEST_CASE("a port returns the attributes that it reported") {
  const port_attributes port(2, some_port());
  CHECK(port.number().value() == 2);
  CHECK(port.state() == port_state::active);
  CHECK(port.is_active());
  CHECK(port.link_layer() == link_layer::infiniband);
  CHECK(port.active_mtu() == path_mtu(1024));
  CHECK(port.max_mtu() == path_mtu(4096));
  CHECK(port.lid().value() == 0x8001);
  CHECK(port.gid_table_length() == 256);
  CHECK(port.pkey_table_length() == 128);
  CHECK(port.native().state == IBV_PORT_ACTIVE);
  CHECK(printed(port) == "port 2: active, InfiniBand, LID 32769, active MTU 1024");
  CHECK(printed_by_a_hex_stream(port) == printed(port));
}

TEST_CASE("only a port in the active state counts as active") {
  for (const auto state :
       {IBV_PORT_NOP, IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED, IBV_PORT_ACTIVE_DEFER}) {
    ibv_port_attr native = some_port();
    native.state = state;
    CHECK_FALSE(port_attributes(1, native).is_active());
  }
}

TEST_CASE("a port with an unspecified link layer is an InfiniBand port") {
  ibv_port_attr native = some_port();
  native.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  CHECK(port_attributes(1, native).link_layer() == link_layer::infiniband);
  native.link_layer = IBV_LINK_LAYER_ETHERNET;
  CHECK(port_attributes(1, native).link_layer() == link_layer::ethernet);
}

TEST_CASE("a port that reports an invalid MTU has the smallest valid MTU") {
  ibv_port_attr native = some_port();
  for (const unsigned code : {0U, 6U, 200U}) {
    std::memcpy(&native.active_mtu, &code, sizeof code);
    CHECK(port_attributes(1, native).active_mtu() == path_mtu(256));
  }
}

TEST_CASE("an unknown port state is inactive and its text says that it is unknown") {
  ibv_port_attr native = some_port();
  const unsigned state = 200;
  std::memcpy(&native.state, &state, sizeof state);
  CHECK_FALSE(port_attributes(1, native).is_active());
  CHECK(to_string(port_attributes(1, native).state()) == std::string("unknown port state"));
}

TEST_CASE("port states and link layers have names") {
  std::set<std::string> names;
  for (const auto state : {port_state::no_change, port_state::down, port_state::initializing,
                           port_state::armed, port_state::active, port_state::active_deferred})
    names.insert(to_string(state));
  CHECK(names.size() == 6);
  CHECK(to_string(static_cast<port_state>(99)) == std::string("unknown port state"));
  CHECK(to_string(link_layer::infiniband) == std::string("InfiniBand"));
  CHECK(to_string(link_layer::ethernet) == std::string("Ethernet"));
  CHECK(to_string(static_cast<link_layer>(99)) == std::string("unknown link layer"));
}
