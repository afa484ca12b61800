// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/device/interface_address.hpp>

#include <net/if.h>

#include <algorithm>
#include <array>
#include <utility>

using verbspp::gid;
using verbspp::interface_address;
using verbspp::interface_table;
using verbspp::share_prefix;

namespace {

constexpr gid loopback{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};

}  // namespace

TEST_CASE("the table of interfaces contains the loopback address with all its properties") {
  const auto asked = interface_table::query();
  REQUIRE(asked.has_value());
  const interface_table& table = asked.value();
  const auto* const found =
      std::find_if(table.begin(), table.end(),
                   [](const interface_address& each) { return each.address == loopback; });
  if (found == table.end()) SKIP("lo has no address here");
  CHECK(found->prefix_length == 96 + 8);
  CHECK(found->interface_index == ::if_nametoindex("lo"));
  CHECK(found->is_loopback);
  CHECK(found->is_up);
  CHECK(found->vlan == interface_address::untagged);
}

TEST_CASE("a moved-from table is empty") {
  auto asked = interface_table::query();
  REQUIRE(asked.has_value());
  const interface_table taken = std::move(asked).value();
  CHECK(asked.value().empty());
  CHECK(asked.value().begin() == asked.value().end());
  CHECK(taken.size() == static_cast<std::size_t>(taken.end() - taken.begin()));
}

TEST_CASE("prefixes are compared bit by bit") {
  constexpr gid left{{0x20, 0x01, 0x0d, 0xb8, 0b1010'0000}};
  constexpr gid right{{0x20, 0x01, 0x0d, 0xb8, 0b1011'0000}};
  for (unsigned bits = 0; bits <= 35; ++bits) CHECK(share_prefix(left, right, bits));
  for (unsigned bits = 36; bits <= 128; ++bits) CHECK_FALSE(share_prefix(left, right, bits));
  CHECK(share_prefix(left, left, 128));
}

TEST_CASE("an IPv4 subnet has no IPv6 addresses") {
  const interface_address everything{.address = loopback, .prefix_length = 0};
  CHECK(everything.shares_subnet_with(loopback));
  CHECK_FALSE(everything.shares_subnet_with(gid{{0x20, 0x01}}));
}
