// SPDX-License-Identifier: Apache-2.0
// The marks that Valgrind's Memcheck has for memory that the device writes. These tests run only
// under Valgrind.
#include "catch.hpp"
#include "support/peer.hpp"

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>

#include <cstdint>

namespace {

enum class mark : std::uint8_t { defined, undefined, inaccessible };

mark mark_of(const unsigned char& byte) {
  unsigned char bits = 0;
  const auto result = VALGRIND_GET_VBITS(&byte, &bits, 1);
  REQUIRE(result != 0);
  if (result == 3) return mark::inaccessible;
  return bits == 0 ? mark::defined : mark::undefined;
}

/// Returns how many of the first `length` bytes have the mark `wanted`.
std::size_t count(const endpoint& end, std::size_t length, mark wanted) {
  std::size_t found = 0;
  for (std::size_t at = 0; at < length; ++at)
    if (mark_of(end.memory[at]) == wanted) ++found;
  return found;
}

}  // namespace

TEST_CASE("Valgrind: data that arrives from the same process is defined", "[.][valgrind]") {
  connection link(patient());
  VALGRIND_MAKE_MEM_UNDEFINED(link.right.memory.data(), 64);
  VALGRIND_MAKE_MEM_UNDEFINED(link.left.memory.data(), 16);
  REQUIRE(link.left.write(1, {link.left.piece(64, 16)}, link.right.here()) == 0);
  REQUIRE(link.right.post_receive(2, {link.right.piece(16, 32)}) == 0);
  REQUIRE(link.left.send(3, {link.left.piece(64, 16)}) == 0);
  REQUIRE(link.left.read(4, {link.left.piece(0, 16)}, link.right.here(), 128) == 0);
  for (int each = 0; each < 3; ++each) CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(count(link.right, 32, mark::defined) == 32);
  // No data has arrived here.
  CHECK(count(link.right, 64, mark::undefined) == 32);
  CHECK(count(link.left, 16, mark::defined) == 16);
}

TEST_CASE("Valgrind: memory remains inaccessible when data arrives", "[.][valgrind]") {
  connection link(patient());
  REQUIRE(link.right.post_receive(1, {link.right.piece(0, 32)}) == 0);
  VALGRIND_MAKE_MEM_NOACCESS(link.right.memory.data(), 16);
  VALGRIND_MAKE_MEM_UNDEFINED(link.right.memory.data() + 16, 16);
  REQUIRE(link.left.send(2, {link.left.piece(0, 32)}) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(count(link.right, 32, mark::inaccessible) == 16);
  CHECK(count(link.right, 32, mark::defined) == 16);
}

TEST_CASE("Valgrind: data that another process writes is defined", "[.][valgrind]") {
  endpoint end(patient());
  VALGRIND_MAKE_MEM_UNDEFINED(end.memory.data(), 8000);
  peer other("word writer");
  other.meet(end);
  REQUIRE(other.wait() == 0);
  CHECK(count(end, 8000, mark::defined) == 8000);
}

TEST_CASE("Valgrind: memory remains inaccessible when another process's data is read into it",
          "[.][valgrind]") {
  endpoint end(patient());
  peer other("target");
  const address there = other.meet(end);
  VALGRIND_MAKE_MEM_NOACCESS(end.memory.data(), 64);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    REQUIRE(end.read(id, {end.piece(0, 64)}, there) == 0);
    REQUIRE(end.wait().status == IBV_WC_SUCCESS);
  }
  CHECK(count(end, 64, mark::inaccessible) == 64);
  VALGRIND_MAKE_MEM_DEFINED(end.memory.data(), 64);
  other.finish();
}

#endif
