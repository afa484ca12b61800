// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/memory/keys.hpp>

#include <cstdint>
#include <map>
#include <type_traits>
#include <unordered_map>

using verbspp::local_key;
using verbspp::remote_key;
using verbspp::test::printed;

namespace {

// True if the only way to create a key is an explicit conversion from the 32 bits that a device
// assigns.
template <class Key>
inline constexpr bool is_held_right =
    std::is_constructible_v<Key, std::uint32_t> && !std::is_convertible_v<std::uint32_t, Key> &&
    !std::is_constructible_v<Key, std::uint64_t> && !std::is_constructible_v<Key, int> &&
    !std::is_constructible_v<Key, bool> && !std::is_default_constructible_v<Key> &&
    !std::is_convertible_v<Key, std::uint32_t> && sizeof(Key) == sizeof(std::uint32_t) &&
    std::is_trivially_copyable_v<Key>;
static_assert(is_held_right<remote_key>);
static_assert(is_held_right<local_key>);
static_assert(!std::is_constructible_v<remote_key, local_key>);
static_assert(!std::is_constructible_v<local_key, remote_key>);

}  // namespace

TEST_CASE("a key has the number that the device chose, and keys are compared by number") {
  constexpr remote_key key(0x123456ffU);
  static_assert(key.value() == 0x123456ff);
  CHECK(key == remote_key(0x123456ffU));
  CHECK(key != remote_key(0x12345600U));
  CHECK(remote_key(0x12345600U) < key);
  CHECK(local_key(1U) < local_key(0x80000000U));
}

TEST_CASE("keys can be used as keys of maps") {
  std::unordered_map<remote_key, int> remote{{remote_key(1U), 1}, {remote_key(2U), 2}};
  CHECK(remote.at(remote_key(2U)) == 2);
  std::unordered_map<local_key, int> local{{local_key(1U), 1}};
  CHECK(local.at(local_key(1U)) == 1);
  std::map<remote_key, int> ordered{{remote_key(2U), 2}, {remote_key(1U), 1}};
  CHECK(ordered.begin()->second == 1);
}

TEST_CASE("keys print in the format of the RDMA tools") {
  CHECK(printed(remote_key(0xabcU)) == "0x00000abc");
  CHECK(printed(local_key(0xfedcba98U)) == "0xfedcba98");
}
