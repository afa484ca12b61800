// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which addresses ports offer, and which pair of addresses two ports choose from them.
#include "../catch.hpp"
#include "../hosts/host.hpp"
#include "text.hpp"
#include <verbspp/qp/address_offer.hpp>

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
using verbspp::gid_type;
using verbspp::offered_address;
using verbspp::unusable_addresses;
using verbspp::test::address_of;
using verbspp::test::contains;
using verbspp::test::host;
using verbspp::test::host_pair;
using verbspp::test::host_pairs;
using verbspp::test::meeting;
using verbspp::test::printed;

TEST_CASE(
    "two hosts choose the expected pair of addresses or both report why they cannot connect") {
  for (const host_pair& pair : host_pairs()) {
    INFO(pair.name);
    const meeting& wanted = pair.wanted;
    const auto seen_left = choose_addresses(pair.left.offer(), pair.right.offer());
    const auto seen_right = choose_addresses(pair.right.offer(), pair.left.offer());
    REQUIRE(seen_left.has_value() == wanted.refusal.empty());
    REQUIRE(seen_right.has_value() == wanted.refusal.empty());
    if (!wanted.refusal.empty()) {
      for (const auto& seen : {seen_left, seen_right}) {
        CHECK(seen.error() == error_kind::mismatch);
        CHECK(contains(seen.error().message(), wanted.refusal));
      }
      continue;
    }
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
}

TEST_CASE("a container does not offer the addresses of its host") {
  // The GID table contains the addresses of all interfaces on the port, although only one of them
  // is in this network namespace.
  const host left =
      host().in_table(7, "192.0.2.1").in_table(9, "192.0.2.100").on_interface(9, "192.0.2.100/24");
  unusable_addresses unusable;
  CHECK(left.offer(&unusable).size() == 2);
  CHECK(unusable.foreign == 2);
}

TEST_CASE("addresses without an interface are not offered if others have one") {
  const host left = host().in_table(0, "192.0.2.9").has(2, "192.0.2.1/24");
  unusable_addresses unusable;
  const address_offer offer = left.offer(&unusable);
  CHECK(unusable.without_interface == 2);
  REQUIRE(offer.size() == 2);
  CHECK(offer[0].index.value() == 3);
}

TEST_CASE("addresses that are down, loopback or stale are counted and not offered") {
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

TEST_CASE("the best sixteen addresses of a large table are offered") {
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

TEST_CASE("two addresses in the same VLAN are preferred to other addresses of the subnet") {
  const host left = host().has(2, "192.0.2.1/24").has(3, "192.0.2.3/24", 100);
  const host right = host().has(2, "192.0.2.2/24", 100);
  const auto chosen = choose_addresses(left.offer(), right.offer());
  REQUIRE(chosen.has_value());
  CHECK(to_string(chosen.value().local.address) == "::ffff:192.0.2.3");
  CHECK(chosen.value().reach == address_reach::same_subnet);
}

TEST_CASE("the error about a missing offer names the end without addresses") {
  const host nothing;
  const host something = host().has(2, "192.0.2.1/24");
  const auto here = choose_addresses(nothing.offer(), something.offer());
  REQUIRE(here.has_error());
  CHECK(contains(here.error().message(), "this end offers no address"));
  const auto there = choose_addresses(something.offer(), nothing.offer());
  REQUIRE(there.has_error());
  CHECK(contains(there.error().message(), "the peer offers no address"));
}

TEST_CASE("both ends choose the same pair of addresses from random offers") {
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

TEST_CASE("an offered address prints all of its properties") {
  const host tagged = host().version(host::only::v2).has(3, "2001:db8::1/64", 100);
  CHECK(printed(tagged.offer()[0]) == "2001:db8::1/64 (RoCE v2, VLAN 100)");
  const host plain = host().version(host::only::v1).in_table(0, "fe80::1");
  CHECK(printed(plain.offer()[0]) == "fe80::1 (RoCE v1)");
}
