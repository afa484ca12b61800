// SPDX-License-Identifier: Apache-2.0
// Device memory, and requests that access it.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr unsigned device_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                   IBV_ACCESS_ZERO_BASED;

ibv_dm* allocate_device_memory(ibv_context* verbs, std::size_t length,
                               std::uint32_t log_alignment = 0, std::uint32_t mask = 0) {
  ibv_alloc_dm_attr attributes{length, log_alignment, mask};
  errno = 0;
  return ibv_alloc_dm(verbs, &attributes);
}

/// Device memory that belongs to an endpoint's context. It is freed before the context is closed.
struct registered_device_memory {
  /// Allocates `length` bytes, and registers those from `offset` to the end.
  registered_device_memory(const endpoint& owner, std::size_t length, std::size_t offset = 0)
      : memory(allocate_device_memory(owner.context, length)) {
    REQUIRE(memory != nullptr);
    region = ibv_reg_dm_mr(owner.domain, memory, offset, length - offset, device_rights);
    REQUIRE(region != nullptr);
  }
  registered_device_memory(const registered_device_memory&) = delete;
  registered_device_memory& operator=(const registered_device_memory&) = delete;
  ~registered_device_memory() {
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_free_dm(memory) == 0);
  }
  address there(const endpoint& owner) const {
    address result = owner.here();
    result.memory = 0;
    result.rkey = region->rkey;
    return result;
  }
  ibv_dm* memory;
  ibv_mr* region = nullptr;
};

/// Receives the rkey for the peer's device memory, and returns the address at which requests access
/// that memory.
address hear_of(peer& other, address there) {
  there.memory = 0;
  there.rkey = 0;
  for (int byte = 0; byte < 4; ++byte)
    there.rkey = there.rkey << 8 | static_cast<unsigned char>(other.hear());
  return there;
}

}  // namespace

TEST_CASE("device memory can be allocated up to a reported limit") {
  open_context opened;
  ibv_context* verbs = opened.verbs;
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(verbs, nullptr, &device) == 0);
  REQUIRE(device.max_dm_size == std::size_t{4} << 20);
  const auto refused = [&](int error, std::size_t length, std::uint32_t alignment = 0,
                           std::uint32_t mask = 0) {
    CHECK(allocate_device_memory(verbs, length, alignment, mask) == nullptr);
    CHECK(errno == error);
  };
  refused(EINVAL, 0);
  refused(EINVAL, device.max_dm_size + 1);
  refused(EINVAL, 8, 64);
  refused(EINVAL, 8, 0, 1);
  refused(ENOMEM, 8, 40);
  ibv_dm* one = allocate_device_memory(verbs, 1);
  REQUIRE(one != nullptr);
  refused(ENOMEM, device.max_dm_size);
  ibv_dm* rest = allocate_device_memory(verbs, device.max_dm_size - 1, 20);
  REQUIRE(rest != nullptr);
  refused(ENOMEM, 1);
  CHECK(ibv_free_dm(one) == 0);
  CHECK(ibv_free_dm(rest) == 0);
  ibv_dm* all = allocate_device_memory(verbs, device.max_dm_size);
  REQUIRE(all != nullptr);
  CHECK(ibv_free_dm(all) == 0);
}

TEST_CASE("all contexts of a process share 16 MiB of device memory") {
  std::array<open_context, 5> opened;
  for (std::size_t at = 0; at < 4; ++at)
    CHECK(allocate_device_memory(opened[at].verbs, std::size_t{4} << 20) != nullptr);
  CHECK(allocate_device_memory(opened[4].verbs, 1) == nullptr);
  CHECK(errno == ENOMEM);
  // Another context can still be opened and closed.
  {
    const open_context last;
  }
}

TEST_CASE("device memory is initialized to zeros and can be copied to and from") {
  open_context opened;
  std::array<unsigned char, 100> bytes{};
  for (int round = 0; round < 2; ++round) {
    ibv_dm* memory = allocate_device_memory(opened.verbs, 100);
    REQUIRE(memory != nullptr);
    bytes.fill(1);
    CHECK(ibv_memcpy_from_dm(bytes.data(), memory, 0, 100) == 0);
    CHECK(std::count(bytes.begin(), bytes.end(), 0) == 100);
    bytes.fill(7);
    CHECK(ibv_memcpy_to_dm(memory, 88, bytes.data(), 12) == 0);
    bytes.fill(0);
    CHECK(ibv_memcpy_from_dm(bytes.data(), memory, 80, 20) == 0);
    CHECK(std::count(bytes.begin(), bytes.end(), 7) == 12);
    CHECK(ibv_memcpy_to_dm(memory, 100, bytes.data(), 0) == 0);
    CHECK(ibv_memcpy_to_dm(memory, 92, bytes.data(), 12) == EFAULT);
    // Offsets and lengths must be multiples of four bytes.
    for (const std::size_t wrong : {1U, 2U, 3U}) {
      CHECK(ibv_memcpy_to_dm(memory, wrong, bytes.data(), 4) == EINVAL);
      CHECK(ibv_memcpy_to_dm(memory, 4, bytes.data(), wrong) == EINVAL);
      CHECK(ibv_memcpy_from_dm(bytes.data(), memory, wrong, 4) == EINVAL);
      CHECK(ibv_memcpy_from_dm(bytes.data(), memory, 4, wrong) == EINVAL);
    }
    CHECK(ibv_memcpy_from_dm(bytes.data(), memory, 101, 0) == EFAULT);
    CHECK(ibv_memcpy_from_dm(bytes.data(), memory, ~std::uint64_t{0}, 2) == EFAULT);
    CHECK(ibv_memcpy_to_dm(memory, 0, nullptr, 4) == EFAULT);
    CHECK(ibv_free_dm(memory) == 0);
  }
}

TEST_CASE("regions of device memory are zero-based and keep the memory busy") {
  endpoint end;
  ibv_dm* memory = allocate_device_memory(end.context, 1000);
  REQUIRE(memory != nullptr);
  const auto refused = [&](std::uint64_t offset, std::size_t length, unsigned access) {
    CHECK(refusal([&] { return ibv_reg_dm_mr(end.domain, memory, offset, length, access); }) ==
          EINVAL);
  };
  refused(0, 1000, IBV_ACCESS_LOCAL_WRITE);
  refused(0, 1001, device_rights);
  refused(1001, 0, device_rights);
  refused(1, 1000, device_rights);
  refused(~std::uint64_t{0}, 2, device_rights);
  refused(0, 1000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE);
  refused(0, 1000, device_rights | IBV_ACCESS_ON_DEMAND);
  ibv_mr* region = ibv_reg_dm_mr(end.domain, memory, 500, 500, device_rights);
  REQUIRE(region != nullptr);
  CHECK(region->length == 500);
  CHECK(ibv_free_dm(memory) == EBUSY);
  errno = 0;
  CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                     IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_CMD);
  CHECK(errno == EINVAL);
  CHECK(ibv_dereg_mr(region) == 0);
  CHECK(ibv_free_dm(memory) == 0);
}

TEST_CASE("a region beyond the device memory gives no access") {
  connection link;
  const registered_device_memory target(link.right, 1000, 1000);
  REQUIRE(link.left.write(1, {link.left.piece(0, 1)}, target.there(link.right)) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("an atomic on misaligned device memory is refused even if its offset is aligned") {
  connection link(with_atomics());
  const registered_device_memory target(link.right, 64, 4);
  REQUIRE(link.left.fetch_and_add(1, link.left.piece(0, 8), target.there(link.right), 41) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  std::array<unsigned char, 64> bytes{};
  REQUIRE(ibv_memcpy_from_dm(bytes.data(), target.memory, 0, bytes.size()) == 0);
  CHECK(std::count(bytes.begin(), bytes.end(), 0) == 64);
}

TEST_CASE("requests address device memory by offsets at both ends") {
  connection link(with_atomics());
  const registered_device_memory target(link.right, 4096);
  const registered_device_memory source(link.left, 4096);
  const address there = target.there(link.right);
  std::vector<unsigned char> bytes(4096, 5);
  REQUIRE(ibv_memcpy_to_dm(source.memory, 0, bytes.data(), bytes.size()) == 0);
  const auto piece = [&](std::uint64_t offset, std::uint32_t length) {
    return ibv_sge{offset, length, source.region->lkey};
  };
  REQUIRE(link.left.write(1, {piece(1000, 96)}, there, 4000) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  REQUIRE(ibv_memcpy_from_dm(bytes.data(), target.memory, 0, bytes.size()) == 0);
  CHECK(std::count(bytes.begin(), bytes.begin() + 4000, 0) == 4000);
  CHECK(std::count(bytes.begin() + 4000, bytes.end(), 5) == 96);
  REQUIRE(link.left.fetch_and_add(2, piece(0, 8), there, 41, 16) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  REQUIRE(link.left.compare_and_swap(3, piece(8, 8), there, 41, 50, 16) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  std::array<std::uint64_t, 2> before{};
  REQUIRE(ibv_memcpy_from_dm(before.data(), source.memory, 0, sizeof(before)) == 0);
  CHECK(before == std::array<std::uint64_t, 2>{0, 41});
  // Send a message that is received into device memory.
  REQUIRE(link.right.post_receive(4, {ibv_sge{8, 96, target.region->lkey}}) == 0);
  REQUIRE(link.left.send(4, {piece(1000, 96)}) == 0);
  CHECK(link.right.wait().byte_len == 96);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  REQUIRE(ibv_memcpy_from_dm(bytes.data(), target.memory, 8, 96) == 0);
  CHECK(std::count(bytes.begin(), bytes.begin() + 96, 5) == 96);
  SECTION("a request beyond the end of the device memory fails") {
    REQUIRE(link.left.write(5, {piece(0, 97)}, there, 4000) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("a request beyond the end of the local device memory fails") {
    REQUIRE(link.left.write(5, {piece(4000, 97)}, there) == 0);
    CHECK(link.left.wait().status == IBV_WC_LOC_PROT_ERR);
  }
}

TEST_CASE("another process can access device memory even while its owner is stopped") {
  options wanted = patient();
  wanted.queue_pair_access |= IBV_ACCESS_REMOTE_ATOMIC;
  endpoint end(wanted);
  peer other("holder of device memory");
  const address there = hear_of(other, other.meet(end));
  REQUIRE((!shares_memory() || becomes_direct(end, there, 60000)));
  const std::uint32_t psn = next_psn_of(end);
  if (shares_memory()) other.stop();
  std::fill_n(end.memory.begin(), 5000, static_cast<unsigned char>(3));
  REQUIRE(end.write(1, {end.piece(0, 2000), end.piece(2000, 3000)}, there, 8192) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  REQUIRE(end.read(2, {end.piece(8000, 5001)}, there, 8192) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  CHECK(std::count(end.memory.begin() + 8000, end.memory.begin() + 13000, 3) == 5000);
  CHECK(end.memory[13000] == 0);
  REQUIRE(end.compare_and_swap(3, end.piece(16, 8), there, 0, 1, 4096) == 0);
  CHECK(end.wait().status == IBV_WC_SUCCESS);
  if (shares_memory()) {
    CHECK(next_psn_of(end) == psn);
    other.resume();
  }
  // Both processes add to the word at the same time.
  other.tell('a');
  for (std::uint64_t id = 0; id < 1000; ++id) {
    REQUIRE(end.fetch_and_add(id, end.piece(16, 8), there, 1) == 0);
    REQUIRE(end.wait().status == IBV_WC_SUCCESS);
  }
  CHECK(other.hear() == 'a');
  other.finish();
}

TEST_CASE("requests to device memory of a dead process fail") {
  options wanted = patient();
  wanted.timeout = 8;
  wanted.retry_count = 1;
  endpoint end(wanted);
  peer other("holder of device memory");
  const address there = hear_of(other, other.meet(end));
  REQUIRE((!shares_memory() || becomes_direct(end, there, 60000)));
  other.kill();
  other.wait();
  const auto latest = std::chrono::steady_clock::now() + patience;
  ibv_wc completion{};
  do {
    REQUIRE(end.write(1, {end.piece(0, 8)}, there) == 0);
    completion = end.wait();
  } while (completion.status == IBV_WC_SUCCESS && std::chrono::steady_clock::now() < latest);
  CHECK(completion.status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("nothing is written to device memory after its region was deregistered") {
  endpoint end(patient());
  peer other("holder of device memory");
  const address there = hear_of(other, other.meet(end));
  REQUIRE((!shares_memory() || becomes_direct(end, there, 60000)));
  other.tell('d');
  ibv_wc completion{};
  do {
    REQUIRE(end.write(1, {end.piece(0, 60000)}, there) == 0);
    completion = end.wait();
  } while (completion.status == IBV_WC_SUCCESS);
  CHECK(completion.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(other.hear() == 'd');
  other.finish();
}
