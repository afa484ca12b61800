// SPDX-License-Identifier: Apache-2.0
/// \file
/// GID tables as real hosts have them, and the addresses that two of them have to meet at.
#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/qp/address_offer.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

using verbspp::address_offer;
using verbspp::address_pair;
using verbspp::address_reach;
using verbspp::choose_addresses;
using verbspp::error_kind;
using verbspp::gid;
using verbspp::gid_entry;
using verbspp::gid_index;
using verbspp::gid_type;
using verbspp::interface_address;
using verbspp::offer_of;
using verbspp::offered_address;
using verbspp::unusable_addresses;
using verbspp::test::contains;
using verbspp::test::printed;

namespace {

/// IPv4 in its usual form, too.
gid address_of(const std::string& text) {
  gid address;
  const std::string full = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  REQUIRE(::inet_pton(AF_INET6, full.c_str(), address.bytes.data()) == 1);
  return address;
}

/// A host with one RoCE port: the addresses of its interfaces, and the GID table that the kernel
/// makes of them, in which every address stands twice, as v1 and as v2.
class host {
 public:
  /// "192.0.2.1/24", on an interface of that index.
  host& has(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0) {
    return on_interface(interface, address, vlan).in_table(interface, address);
  }
  host& on_interface(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0) {
    const std::size_t slash = address.find('/');
    const gid parsed = address_of(address.substr(0, slash));
    const int length = std::stoi(address.substr(slash + 1)) + (parsed.is_ipv4_mapped() ? 96 : 0);
    interfaces_.push_back({.address = parsed,
                           .prefix_length = static_cast<std::uint8_t>(length),
                           .interface_index = interface,
                           .vlan = vlan});
    return *this;
  }
  host& in_table(std::uint32_t interface, const std::string& address) {
    if (versions_ != only::v2) add(interface, address, gid_type::roce_v1);
    if (versions_ != only::v1) add(interface, address, gid_type::roce_v2);
    return *this;
  }
  host& down(std::uint32_t interface) {
    for (interface_address& each : interfaces_)
      if (each.interface_index == interface) each.is_up = false;
    return *this;
  }
  host& loopback(std::uint32_t interface) {
    for (interface_address& each : interfaces_)
      if (each.interface_index == interface) each.is_loopback = true;
    return *this;
  }
  /// An empty place, as addresses leave them that were taken away.
  host& gap() {
    ++next_;
    return *this;
  }
  enum class only { none, v1, v2 };
  host& version(only which) {
    versions_ = which;
    return *this;
  }

  [[nodiscard]] address_offer offer(unusable_addresses* unusable = nullptr) const {
    return offer_of(table_, interfaces_, unusable);
  }

 private:
  void add(std::uint32_t interface, const std::string& address, gid_type type) {
    table_.push_back({.address = address_of(address.substr(0, address.find('/'))),
                      .type = type,
                      .index = gid_index::assume(next_++),
                      .port = 1,
                      .interface_index = interface});
  }

  std::vector<interface_address> interfaces_;
  std::vector<gid_entry> table_;
  std::uint8_t next_ = 0;
  only versions_ = only::none;
};

/// What both ends have to see.
struct meeting {
  std::string left;
  std::string right;
  gid_type type = gid_type::roce_v2;
  address_reach reach = address_reach::same_subnet;
  bool is_doubtful = false;
};

void check(const host& left, const host& right, const meeting& wanted) {
  const auto seen_left = choose_addresses(left.offer(), right.offer());
  const auto seen_right = choose_addresses(right.offer(), left.offer());
  REQUIRE(seen_left.has_value());
  REQUIRE(seen_right.has_value());
  const address_pair& one = seen_left.value();
  const address_pair& other = seen_right.value();
  CHECK(to_string(one.local.address) == to_string(address_of(wanted.left)));
  CHECK(to_string(one.remote.address) == to_string(address_of(wanted.right)));
  CHECK(one.local.type == wanted.type);
  CHECK(one.remote.type == wanted.type);
  CHECK(one.reach == wanted.reach);
  CHECK(one.is_doubtful == wanted.is_doubtful);
  CHECK(one.local == other.remote);
  CHECK(one.remote == other.local);
  CHECK(other.reach == one.reach);
  CHECK(other.is_doubtful == one.is_doubtful);
}

void check_refused(const host& left, const host& right, const std::string& reason) {
  for (const auto& seen : {choose_addresses(left.offer(), right.offer()),
                           choose_addresses(right.offer(), left.offer())}) {
    REQUIRE(seen.has_error());
    CHECK(seen.error() == error_kind::mismatch);
    CHECK(contains(seen.error().message(), reason));
  }
}

}  // namespace

TEST_CASE("two hosts of one subnet meet by IPv4 and RoCE v2") {
  const host left = host().has(2, "fe80::1/64").has(2, "192.0.2.1/24");
  const host right = host().has(3, "fe80::2/64").has(3, "192.0.2.2/24");
  check(left, right, {"192.0.2.1", "192.0.2.2"});
}

TEST_CASE("with two networks on one port, the one that both have is taken") {
  const host left = host().has(2, "10.1.0.1/16").has(2, "10.2.0.1/16");
  const host right = host().has(2, "10.3.0.2/16").has(2, "10.2.0.2/16");
  check(left, right, {"10.2.0.1", "10.2.0.2"});
}

TEST_CASE("a global IPv6 address is better than a link-local IPv4 one") {
  const host left = host().has(2, "169.254.7.1/16").has(2, "2001:db8::1/64");
  const host right = host().has(2, "169.254.7.2/16").has(2, "2001:db8::2/64");
  check(left, right, {"2001:db8::1", "2001:db8::2"});
}

TEST_CASE("IPv6 only hosts meet by their global addresses") {
  const host left = host().has(2, "fe80::1/64").has(2, "2001:db8:0:1::1/64");
  const host right = host().has(2, "fe80::2/64").has(2, "2001:db8:0:1::2/64");
  check(left, right, {"2001:db8:0:1::1", "2001:db8:0:1::2"});
}

TEST_CASE("a dual stack host meets an IPv6 only one by IPv6") {
  const host left = host().has(2, "192.0.2.1/24").has(2, "2001:db8::1/64");
  const host right = host().has(2, "fe80::2/64").has(2, "2001:db8::2/64");
  check(left, right, {"2001:db8::1", "2001:db8::2"});
}

TEST_CASE("hosts with link-local addresses only meet by these") {
  const host left = host().has(2, "fe80::1/64");
  const host right = host().has(2, "fe80::2/64");
  check(left, right, {"fe80::1", "fe80::2", gid_type::roce_v2, address_reach::link_local});
}

TEST_CASE("link-local addresses for want of others that fit are doubtful") {
  const host left = host().has(2, "fe80::1/64").has(2, "192.0.2.1/24");
  const host right = host().has(2, "fe80::2/64").has(2, "2001:db8::2/64");
  check(left, right, {"fe80::1", "fe80::2", gid_type::roce_v2, address_reach::link_local, true});
}

TEST_CASE("a port with RoCE v1 only is met by v1, in the same subnet") {
  const host left = host().version(host::only::v1).has(2, "192.0.2.1/24");
  const host right = host().has(2, "192.0.2.2/24");
  check(left, right, {"192.0.2.1", "192.0.2.2", gid_type::roce_v1});
}

TEST_CASE("RoCE v1 does not cross a router, but v2 does") {
  const host left = host().has(2, "10.1.0.1/24");
  const host right = host().has(2, "10.2.0.2/24");
  check(left, right, {"10.1.0.1", "10.2.0.2", gid_type::roce_v2, address_reach::routed});
  const host old = host().version(host::only::v1).has(2, "10.2.0.2/24");
  check_refused(left, old, "different subnets");
}

TEST_CASE("ports of different RoCE versions are told so") {
  check_refused(host().version(host::only::v1).has(2, "192.0.2.1/24"),
                host().version(host::only::v2).has(2, "192.0.2.2/24"), "v1 only");
}

TEST_CASE("a container does not offer the addresses of its host") {
  // The table is that of the port; this namespace has one of its interfaces.
  const host left =
      host().in_table(7, "192.0.2.1").in_table(9, "192.0.2.100").on_interface(9, "192.0.2.100/24");
  const host right = host().has(2, "192.0.2.2/24");
  check(left, right, {"192.0.2.100", "192.0.2.2"});
  unusable_addresses unusable;
  CHECK(left.offer(&unusable).size() == 2);
  CHECK(unusable.foreign == 2);
}

TEST_CASE("entries without an interface are not offered where others have one") {
  const host left = host().in_table(0, "192.0.2.9").has(2, "192.0.2.1/24");
  unusable_addresses unusable;
  const address_offer offer = left.offer(&unusable);
  CHECK(unusable.without_interface == 2);
  REQUIRE(offer.size() == 2);
  CHECK(offer[0].index.value() == 3);
}

TEST_CASE("a device whose entries have no interfaces offers all of them") {
  const host left = host().in_table(0, "fe80::1").in_table(0, "198.18.83.1").in_table(0, "fd00::1");
  const host right =
      host().in_table(0, "fe80::2").in_table(0, "198.18.83.2").in_table(0, "fd00::2");
  check(left, right, {"198.18.83.1", "198.18.83.2", gid_type::roce_v2, address_reach::routed});
}

TEST_CASE("a bond is met by the address of the bond") {
  // The slaves have their link-local entries, and no address of their own.
  const host left =
      host().in_table(2, "fe80::a").on_interface(2, "fe80::a/64").has(5, "192.0.2.1/24");
  const host right = host().has(5, "192.0.2.2/24");
  check(left, right, {"192.0.2.1", "192.0.2.2"});
}

TEST_CASE("hosts meet in the VLAN that both are in") {
  const host left =
      host().has(2, "10.0.0.1/24").has(3, "10.0.100.1/24", 100).has(4, "10.0.200.1/24", 200);
  const host right = host().has(6, "10.9.0.2/24").has(7, "10.0.200.2/24", 200);
  check(left, right, {"10.0.200.1", "10.0.200.2"});
}

TEST_CASE("the same subnet in two VLANs is not one link") {
  const host left = host().version(host::only::v1).has(3, "10.0.0.1/24", 100);
  const host right = host().version(host::only::v1).has(3, "10.0.0.2/24", 200);
  check_refused(left, right, "different VLANs");
  const host tagged = host().has(3, "fe80::1/64", 100);
  const host otherwise = host().has(3, "fe80::2/64", 200);
  check_refused(tagged, otherwise, "different VLANs");
}

TEST_CASE("a VLAN that only one end tags may still be one link") {
  const host left = host().has(3, "10.0.0.1/24", 100);
  const host right = host().has(2, "10.0.0.2/24");
  check(left, right, {"10.0.0.1", "10.0.0.2"});
}

TEST_CASE("unique local and global addresses are no pair") {
  check_refused(host().has(2, "fd00::1/64"), host().has(2, "2001:db8::2/64"), "no scope in common");
  check_refused(host().has(2, "192.0.2.1/24"), host().has(2, "2001:db8::2/64"), "IPv4 addresses");
}

TEST_CASE("what is down, loopback or stale is not offered, and counted") {
  const host odd = host()
                       .has(2, "192.0.2.1/24")
                       .has(3, "192.0.2.5/24")
                       .down(3)
                       .has(4, "203.0.113.1/32")
                       .loopback(4)
                       .in_table(2, "127.0.0.1")
                       .in_table(2, "::1")
                       .gap()
                       .in_table(2, "192.0.2.77");
  unusable_addresses unusable;
  const address_offer offer = odd.offer(&unusable);
  REQUIRE(offer.size() == 2);
  CHECK(to_string(offer[0].address) == "::ffff:192.0.2.1");
  CHECK(unusable.down == 2);
  CHECK(unusable.loopback == 6);
  CHECK(unusable.stale == 2);
  CHECK(unusable.foreign == 0);
}

TEST_CASE("two network cards on one subnet: the first that is offered") {
  // One port each; but the table of a bonded or virtual port has both.
  const host left = host().has(2, "192.0.2.11/24").has(3, "192.0.2.12/24");
  const host right = host().has(2, "192.0.2.21/24").has(3, "192.0.2.22/24");
  check(left, right, {"192.0.2.11", "192.0.2.21"});
}

TEST_CASE("the same subnet is better than an earlier place, and the longer prefix decides") {
  const host left = host().has(2, "10.0.0.1/8").has(2, "10.4.1.1/24");
  const host right = host().has(2, "10.4.2.2/24").has(2, "10.4.1.2/24");
  check(left, right, {"10.4.1.1", "10.4.1.2"});
}

TEST_CASE("the best sixteen of a large table are offered") {
  host large;
  for (int i = 1; i <= 40; ++i) large.has(2, "fe80::" + std::to_string(i) + "/64");
  for (int i = 1; i <= 12; ++i) large.has(2, "192.0.2." + std::to_string(i) + "/24");
  const address_offer offer = large.offer();
  REQUIRE(offer.size() == address_offer::capacity);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(offer[i].type == gid_type::roce_v2);
    CHECK(offer[i].address.is_ipv4_mapped());
  }
}

TEST_CASE("ends without addresses are told which") {
  const host nothing;
  const host something = host().has(2, "192.0.2.1/24");
  const auto here = choose_addresses(nothing.offer(), something.offer());
  REQUIRE(here.has_error());
  CHECK(contains(here.error().message(), "this end offers no address"));
  const auto there = choose_addresses(something.offer(), nothing.offer());
  REQUIRE(there.has_error());
  CHECK(contains(there.error().message(), "the peer offers no address"));
}

TEST_CASE("both ends choose the same pair, whatever they offer") {
  std::mt19937 random(20260101);
  const auto below = [&](unsigned limit) {
    return std::uniform_int_distribution<unsigned>(0, limit - 1)(random);
  };
  const std::vector<std::string> addresses{"10.0.0.1",    "10.0.0.2",  "10.0.1.1", "169.254.1.1",
                                           "fe80::1",     "fe80::2",   "fd00::1",  "2001:db8::1",
                                           "2001:db8::2", "192.0.2.1", "fd00::2",  "2001:db8:1::1"};
  const auto offer = [&] {
    address_offer made;
    for (unsigned count = below(7); count > 0; --count) {
      const gid address = address_of(addresses[below(12)]);
      const bool twice = std::any_of(made.begin(), made.end(),
                                     [&](const auto& each) { return each.address == address; });
      if (twice) continue;
      made.add({.address = address,
                .type = below(3) == 0 ? gid_type::roce_v1 : gid_type::roce_v2,
                .prefix_length = static_cast<std::uint8_t>(std::vector{0, 64, 96 + 24}[below(3)]),
                .vlan = static_cast<std::uint16_t>(below(3) * 100)});
    }
    return made;
  };
  int met = 0;
  for (int i = 0; i < 20000; ++i) {
    const address_offer left = offer();
    const address_offer right = offer();
    const auto one = choose_addresses(left, right);
    const auto other = choose_addresses(right, left);
    REQUIRE(one.has_value() == other.has_value());
    if (!one.has_value()) continue;
    ++met;
    REQUIRE(one.value().local == other.value().remote);
    REQUIRE(one.value().remote == other.value().local);
    REQUIRE(one.value().reach == other.value().reach);
  }
  CHECK(met > 5000);
}

TEST_CASE("an offered address prints with all that is known of it") {
  const host tagged = host().version(host::only::v2).has(3, "2001:db8::1/64", 100);
  CHECK(printed(tagged.offer()[0]) == "2001:db8::1/64 (RoCE v2, VLAN 100)");
  const host plain = host().version(host::only::v1).in_table(0, "fe80::1");
  CHECK(printed(plain.offer()[0]) == "fe80::1 (RoCE v1)");
}
