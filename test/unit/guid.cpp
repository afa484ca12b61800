// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/device/gid.hpp>
#include <verbspp/device/guid.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

using verbspp::gid;
using verbspp::guid;
using verbspp::test::printed;

TEST_CASE("a GUID is printed in the format of the RDMA tools") {
  CHECK(printed(guid(0x0c42a103006542aa)) == "0c42:a103:0065:42aa");
  CHECK(to_string(guid(0x0000000000000001)) == "0000:0000:0000:0001");
  CHECK(to_string(guid(UINT64_MAX)) == "ffff:ffff:ffff:ffff");
}

TEST_CASE("a GUID contains its manufacturer") {
  CHECK(guid(0x0c42a103006542aa).oui() == 0x0c42a1);
  CHECK(guid(0x0c42a103006542aa).value() == 0x0c42a103006542aa);
}

TEST_CASE("the bits of an EUI-64 determine the kind of a GUID") {
  const guid given(0x0c42a103006542aa);
  CHECK_FALSE(given.is_zero());
  CHECK_FALSE(given.is_reserved());
  CHECK_FALSE(given.is_local());
  CHECK_FALSE(given.is_group());
  CHECK(guid().is_zero());
  CHECK(guid().is_reserved());
  CHECK(guid(UINT64_MAX).is_reserved());
  CHECK_FALSE(guid(UINT64_MAX).is_zero());
  CHECK(guid(0x0200000000000001).is_local());
  CHECK_FALSE(guid(0x0200000000000001).is_group());
  CHECK(guid(0x0100000000000001).is_group());
  CHECK_FALSE(guid(0x0100000000000001).is_local());
}

TEST_CASE("GUIDs are compared as numbers") {
  CHECK(guid(1) < guid(2));
  CHECK(guid(1) == guid(1));
}

TEST_CASE("types that are used as keys can be hashed") {
  CHECK(std::unordered_set<guid>{guid(1), guid(2), guid(1)}.size() == 2);
  gid one;
  one.bytes[15] = 1;
  gid other;
  other.bytes[0] = 1;
  CHECK(std::unordered_set<gid>{one, other, one, gid()}.size() == 3);
  CHECK(std::hash<gid>()(one) != std::hash<gid>()(other));
  std::unordered_map<verbspp::queue_pair_number, int> by_number;
  by_number[5] = 50;
  by_number[6] = 60;
  CHECK(by_number.at(6) == 60);
  CHECK(std::unordered_set<verbspp::lid>{7, 7, 8}.size() == 2);
}
