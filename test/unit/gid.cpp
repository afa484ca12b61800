// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

using verbspp::gid;
using verbspp::gid_type;
using verbspp::test::printed;
using verbspp::test::printed_by_a_hex_stream;

namespace {

gid gid_of(const char* text) {
  gid address;
  REQUIRE(::inet_pton(AF_INET6, text, address.bytes.data()) == 1);
  return address;
}

struct classified {
  const char* text;
  bool is_zero;
  bool is_link_local;
  bool is_ipv4_mapped;
  bool is_multicast = false;
};

constexpr std::array<classified, 20> addresses{{
    {"::", true, false, false},
    {"::1", false, false, false},
    {"fe80::", false, true, false},
    {"fe80::2:c903:0:1491", false, true, false},
    {"febf:ffff::1", false, true, false},
    {"fec0::1", false, false, false},
    {"fe7f::1", false, false, false},
    {"2001:db8::1", false, false, false},
    {"::ffff:192.0.2.1", false, false, true},
    {"::ffff:0.0.0.0", false, false, true},
    {"::fffe:192.0.2.1", false, false, false},
    {"1::ffff:192.0.2.1", false, false, false},
    {"ff00::", false, false, false, true},
    {"ff12:401b::1", false, false, false, true},
    {"ff0e::ffff:224.0.0.1", false, false, false, true},
    {"feff::1", false, false, false, false},
    {"::ffff:223.255.255.255", false, false, true, false},
    {"::ffff:224.0.0.0", false, false, true, true},
    {"::ffff:239.255.255.255", false, false, true, true},
    {"::ffff:240.0.0.0", false, false, true, false},
}};

}  // namespace

TEST_CASE("a GID reports the kind of its address") {
  for (const classified& each : addresses) {
    CAPTURE(each.text);
    const gid address = gid_of(each.text);
    CHECK(address.is_zero() == each.is_zero);
    CHECK(address.is_link_local() == each.is_link_local);
    CHECK(address.is_ipv4_mapped() == each.is_ipv4_mapped);
    CHECK(address.is_multicast() == each.is_multicast);
  }
}

TEST_CASE("a GID with one nonzero byte is not zero") {
  for (std::size_t i = 0; i < 16; ++i) {
    gid address;
    address.bytes[i] = 1;
    CAPTURE(i);
    CHECK_FALSE(address.is_zero());
  }
}

TEST_CASE("each of the first ten bytes must be zero in a mapped IPv4 address") {
  for (std::size_t i = 0; i < 10; ++i) {
    gid address = gid_of("::ffff:192.0.2.1");
    address.bytes[i] = 1;
    CAPTURE(i);
    CHECK_FALSE(address.is_ipv4_mapped());
  }
}

TEST_CASE("the subnet prefix of a GID is its upper half as a number") {
  CHECK(gid_of("fe80::2:c903:0:1491").subnet_prefix() == 0xfe80000000000000);
  CHECK(gid_of("123:4567:89ab:cdef::").subnet_prefix() == 0x0123456789abcdef);
  CHECK(gid_of("::ffff:192.0.2.1").subnet_prefix() == 0);
}

TEST_CASE("a GID prints as an IPv6 address") {
  for (const char* text : {"::", "fe80::2:c903:0:1491", "2001:db8::1", "::ffff:192.0.2.1",
                           "1111:2222:3333:4444:5555:6666:7777:8888"}) {
    CHECK(to_string(gid_of(text)) == text);
    CHECK(printed(gid_of(text)) == text);
  }
}

TEST_CASE("a GID keeps its bytes when it is converted to the C type and back") {
  const gid address = gid_of("123:4567:89ab:cdef:1122:3344:5566:7788");
  const ibv_gid native = address.native();
  CHECK(native.raw[0] == 0x01);
  CHECK(native.raw[15] == 0x88);
  CHECK(gid::from_native(native) == address);
}

TEST_CASE("GIDs compare by their bytes") {
  CHECK(gid_of("fe80::1") == gid_of("fe80::1"));
  CHECK(gid_of("fe80::1") != gid_of("fe80::2"));
  CHECK(gid_of("fe80::1") < gid_of("fe80::2"));
}

TEST_CASE("GID types have names") {
  CHECK(to_string(gid_type::infiniband) == std::string("InfiniBand"));
  CHECK(to_string(gid_type::roce_v1) == std::string("RoCE v1"));
  CHECK(to_string(gid_type::roce_v2) == std::string("RoCE v2"));
  CHECK(to_string(static_cast<gid_type>(77)) == std::string("unknown GID type"));
}

TEST_CASE("an entry of a GID table can be printed") {
  const verbspp::gid_entry entry{
      .address = gid_of("::ffff:192.0.2.1"), .type = gid_type::roce_v2, .index = 3, .port = 1};
  CHECK(printed(entry) == "GID 3: ::ffff:192.0.2.1 (RoCE v2)");
  CHECK(printed_by_a_hex_stream(entry) == printed(entry));
}
