// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "bytes.hpp"
#include "text.hpp"
#include <verbspp/memory/remote_memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

using verbspp::error_kind;
using verbspp::remote_key;
using verbspp::remote_memory;
using verbspp::test::contains;
using verbspp::test::printed;
using verbspp::test::with;

namespace {

namespace access = verbspp::access;
using readable = remote_memory<access::remote_read>;
using everything = remote_memory<access::all_remote>;
using read_write = remote_memory<access::remote_read | access::remote_write>;

constexpr read_write some_memory(0x1122334455667788, 0x1000, remote_key(0xa1b2c3d4U));

template <class... Bytes>
constexpr auto bytes_of(Bytes... bytes) {
  return std::array<std::byte, sizeof...(Bytes)>{static_cast<std::byte>(bytes)...};
}

// These bytes were written by hand, following the documentation of remote_memory::encode. The
// rights are ibv_access_flags, in which 2 is remote write and 4 is remote read.
constexpr auto some_bytes = bytes_of(0x6d, 1, 0, 6,           // magic, version, rights
                                     0xa1, 0xb2, 0xc3, 0xd4,  // rkey
                                     0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,  // address
                                     0, 0, 0, 0, 0, 0, 0x10, 0);                      // length

constexpr std::uint64_t largest = UINT64_MAX;

}  // namespace

TEST_CASE("a remote memory handle is encoded byte for byte as documented") {
  CHECK(some_memory.encode() == some_bytes);
  CHECK(readable(0, 0, remote_key(0U)).encode() ==
        bytes_of(0x6d, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  CHECK(everything(0, 0, remote_key(0U)).encode()[3] == std::byte{2 | 4 | 8});
}

TEST_CASE("the documented bytes decode to the handle") {
  CHECK(read_write::decode(some_bytes).value() == some_memory);
}

TEST_CASE("a remote memory handle is unchanged after encoding and decoding") {
  for (const everything memory :
       {everything(0, 0, remote_key(0U)), everything(largest, 0, remote_key(0xffffffffU)),
        everything(0, largest, remote_key(1U)), everything(largest - 9, 9, remote_key(77U))})
    CHECK(everything::decode(memory.encode()).value() == memory);
}

TEST_CASE("a handle with more rights decodes to a handle with fewer") {
  const auto memory = readable::decode(some_bytes);
  REQUIRE(memory.has_value());
  CHECK(memory.value() == readable(some_memory));
}

TEST_CASE("a handle that lacks a requested right is refused with the error kind permission") {
  CHECK(everything::decode(some_bytes).error() == error_kind::permission);
  CHECK(remote_memory<access::remote_atomic>::decode(some_bytes).error() == error_kind::permission);
  CHECK(read_write::decode(readable(0, 8, remote_key(1U)).encode()).error() ==
        error_kind::permission);
  CHECK(contains(read_write::decode(readable(0, 8, remote_key(1U)).encode()).error().message(),
                 "does not grant all"));
}

TEST_CASE("a handle whose end is at or beyond 2^64 is refused") {
  CHECK(everything::decode(everything(largest, 1, remote_key(1U)).encode()).error() ==
        error_kind::invalid_input);
  CHECK(everything::decode(everything(1, largest, remote_key(1U)).encode()).error() ==
        error_kind::invalid_input);
  CHECK(contains(
      everything::decode(everything(2, largest, remote_key(1U)).encode()).error().message(),
      "at or beyond 2^64"));
}

TEST_CASE("a truncated or overlong handle is refused with its length") {
  std::vector<std::byte> bytes(some_bytes.begin(), some_bytes.end());
  bytes.resize(64);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    if (length == some_bytes.size()) continue;
    const auto memory = readable::decode(std::span(bytes).first(length));
    REQUIRE(memory.has_error());
    CHECK(memory.error() == error_kind::invalid_input);
    CHECK(contains(memory.error().message(),
                   "length (24 bytes): " + std::to_string(length) + " is out of range"));
  }
}

TEST_CASE("bytes of another format or version are reported as such") {
  CHECK(contains(readable::decode(with(some_bytes, 0, 0x76)).error().message(),
                 "not a remote memory handle"));
  for (const unsigned version : {0U, 2U, 255U}) {
    const auto memory = readable::decode(with(some_bytes, 1, version));
    CHECK(memory.error() == error_kind::mismatch);
    CHECK(contains(memory.error().message(),
                   "format version differs: local 1, remote " + std::to_string(version)));
  }
}

TEST_CASE("a handle with rights that a peer cannot have is refused") {
  for (const unsigned rights : {1U, 7U, 16U, 128U, 255U})
    CHECK(readable::decode(with(some_bytes, 3, rights)).error() == error_kind::invalid_input);
  for (const unsigned rights : {4U, 0x10U, 0x80U, 0xffU})  // 1 and 2 permit flushes
    CHECK(readable::decode(with(some_bytes, 2, rights)).error() == error_kind::invalid_input);
  CHECK(contains(readable::decode(with(some_bytes, 3, 7)).error().message(),
                 "rights: 7 is out of range"));
}

TEST_CASE(
    "decoding arbitrary bytes fails or yields a handle with the same encoding, except for its "
    "rights") {
  std::mt19937 generator(7);
  std::uniform_int_distribution<unsigned> any_byte(0, 255);
  const auto is_refused_or_round_trips = [](std::span<const std::byte> bytes) {
    const auto memory = read_write::decode(bytes);
    if (memory.has_error()) return memory.error().hint() != nullptr;
    auto again = memory.value().encode();
    // The decoder ignores valid rights that `read_write` does not have, so these bytes may differ.
    again[2] = bytes[2];
    again[3] = bytes[3];
    return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
  };
  for (std::size_t offset = 0; offset < some_bytes.size(); ++offset)
    for (unsigned value = 0; value < 256; ++value)
      if (!is_refused_or_round_trips(with(some_bytes, offset, value))) {
        CAPTURE(offset, value);
        FAIL_CHECK("the bytes were neither refused nor decoded to a handle with the same encoding");
      }
  for (std::size_t length = 0; length <= 100; ++length)
    for (int i = 0; i < 100; ++i) {
      std::vector<std::byte> bytes(length);
      for (auto& byte : bytes) byte = static_cast<std::byte>(any_byte(generator));
      if (i % 2 == 1)
        std::copy_n(some_bytes.begin(), std::min<std::size_t>(length, 4), bytes.begin());
      if (!is_refused_or_round_trips(bytes)) {
        CAPTURE(length);
        FAIL_CHECK("the bytes were neither refused nor decoded to a handle with the same encoding");
      }
    }
}

TEST_CASE("a slice of remote memory has the requested range") {
  const auto slice = some_memory.slice(0x10, 0x20);
  REQUIRE(slice.has_value());
  CHECK(slice.value().address() == 0x1122334455667798);
  CHECK(slice.value().length() == 0x20);
  CHECK(slice.value().rkey() == remote_key(0xa1b2c3d4U));
}

static_assert(everything(0x1000, 64, remote_key(7U)).slice_unchecked(16, 48) ==
              everything(0x1010, 48, remote_key(7U)));

TEST_CASE("a slice must lie within its memory whatever its offset and length") {
  struct request {
    std::uint64_t offset;
    std::uint64_t length;
    bool inside;
  };
  for (const auto& [offset, length, inside] : std::initializer_list<request>{
           {0, 0x1000, true},
           {0, 0, true},
           {0x1000, 0, true},
           {0xfff, 1, true},
           {0, 0x1001, false},
           {0xfff, 2, false},
           {0x1000, 1, false},
           {0x1001, 0, false},
           {largest, 0, false},
           {largest, largest, false},
           {largest, 1, false},
           {0, largest, false},
           {1, largest, false},
           {0x800, largest - 0x7ff, false},
       }) {
    CAPTURE(offset, length);
    const auto slice = some_memory.slice(offset, length);
    CHECK(slice.has_value() == inside);
    if (slice.has_error()) CHECK(slice.error() == error_kind::invalid_input);
  }
  CHECK(everything(0, largest, remote_key(1U)).slice(largest, 0).has_value());
  CHECK(everything(0, largest, remote_key(1U)).slice(largest, 1).has_error());
}

TEST_CASE("the error about a slice beyond the memory names the requested range and the limit") {
  CHECK(some_memory.slice(4097, 0).error().message() ==
        "remote_memory::slice: offset in bytes: 4097 is above the limit of 4096");
  CHECK(some_memory.slice(4000, 97).error().message() ==
        "remote_memory::slice: number of bytes from the given offset: 97 is above the limit of 96");
}

TEST_CASE("a handle with fewer rights refers to the same memory") {
  constexpr readable fewer = some_memory;
  CHECK(fewer.address() == some_memory.address());
  CHECK(fewer.length() == some_memory.length());
  CHECK(fewer.rkey() == some_memory.rkey());
}

TEST_CASE("a write's destination and a read's source have the memory of their handle") {
  const verbspp::remote_destination destination = some_memory;
  CHECK(destination.memory().address() == some_memory.address());
  CHECK(destination.memory().length() == some_memory.length());
  CHECK(destination.memory().rkey() == some_memory.rkey());
  const verbspp::remote_source source = some_memory;
  CHECK(source.memory().address() == some_memory.address());
  CHECK(source.memory().length() == some_memory.length());
  CHECK(source.memory().rkey() == some_memory.rkey());
}

TEST_CASE("a remote memory handle prints its address and length and rkey and rights") {
  CHECK(printed(some_memory) ==
        "remote memory 0x1122334455667788+4096, rkey 0xa1b2c3d4, remote write|remote read");
  CHECK(printed(readable(largest, largest, remote_key(1U))) ==
        "remote memory 0xffffffffffffffff+18446744073709551615, rkey 0x00000001, remote read");
  CHECK(printed(remote_memory<access::local_read>(1, 2, remote_key(3U))) ==
        "remote memory 0x1+2, rkey 0x00000003, no rights");
}
