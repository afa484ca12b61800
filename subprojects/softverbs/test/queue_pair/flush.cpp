// SPDX-License-Identifier: Apache-2.0
#include "base/newer_verbs.hpp"
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/intruder.hpp"
#include "wire/packet.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace {

namespace newer = softverbs::newer;

constexpr std::uint64_t flushing_operations =
    newer::qp_ex_with_flush | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
constexpr std::uint8_t both = newer::flush_global | newer::flush_persistent;

options with_flush(unsigned placements = both) {
  options result;
  result.region_access |= static_cast<int>(newer::access_to_flush(placements));
  result.queue_pair_access |= newer::access_to_flush(placements);
  return result;
}

struct flushing_connection : building_connection {
  explicit flushing_connection(const options& left_wants = {},
                               const options& right_wants = with_flush())
      : building_connection(flushing_operations, left_wants, right_wants) {}

  int flush(std::uint64_t id, const address& peer, std::uint64_t offset, std::size_t length,
            std::uint8_t placements = newer::flush_global,
            std::uint8_t level = newer::flush_range) const {
    ibv_wr_start(build);
    build->wr_id = id;
    build->wr_flags = IBV_SEND_SIGNALED;
    newer::functions_of(*build).wr_flush(build, peer.rkey, peer.memory + offset, length, placements,
                                         level);
    return ibv_wr_complete(build);
  }
};

}  // namespace

TEST_CASE("a flush completes with its own opcode and without a completion at the peer") {
  flushing_connection link;
  const address peer = link.right.here();
  link.left.memory[0] = 7;
  for (const std::uint8_t placements : {newer::flush_global, newer::flush_persistent, both}) {
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, peer, 64, 0) == 0);
    REQUIRE(link.flush(2, peer, 64, 8, placements) == 0);
    const ibv_wc completed = link.left.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.opcode == newer::wc_flush);
    CHECK(completed.wr_id == 2);
    CHECK(link.right.memory[64] == 7);
  }
  // Flushes zero bytes, and then the whole region.
  REQUIRE(link.flush(3, peer, 0, 0) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  REQUIRE(link.flush(4, peer, 0, link.right.memory.size(), both) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.right.quiet());
}

TEST_CASE("a flush of a whole region needs only its key") {
  flushing_connection link;
  address peer = link.right.here();
  REQUIRE(link.flush(1, peer, std::uint64_t{1} << 40, 12345, both, newer::flush_region) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  peer.rkey ^= 0x100;
  REQUIRE(link.flush(2, peer, 0, 0, both, newer::flush_region) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a persistent flush writes memory to its file") {
  flushing_connection link;
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  constexpr std::size_t size = 3 * 4096;
  REQUIRE(::ftruncate(::fileno(file), size) == 0);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, ::fileno(file), 0);
  REQUIRE(memory != MAP_FAILED);
  ibv_mr* region =
      ibv_reg_mr(link.right.domain, memory, size,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                     static_cast<int>(newer::access_to_flush(newer::flush_persistent)));
  REQUIRE(region != nullptr);
  address there = link.right.here();
  there.memory = reinterpret_cast<std::uintptr_t>(memory);
  there.rkey = region->rkey;
  link.left.memory[0] = 9;
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, there, 5000, 0) == 0);
  REQUIRE(link.flush(2, there, 5000, 8, newer::flush_persistent) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  char byte = 0;
  CHECK(::pread(::fileno(file), &byte, 1, 5000) == 1);
  CHECK(byte == 9);
  // If memory is no longer mapped, it can't be flushed to the file.
  REQUIRE(::munmap(memory, size) == 0);
  REQUIRE(link.flush(3, there, 5000, 8, newer::flush_persistent) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dereg_mr(region) == 0);
  std::fclose(file);
}

TEST_CASE("an invalid flush fails in the same way as with the kernel's driver") {
  const auto attempt = [](const options& right, std::uint64_t offset, std::size_t length,
                          std::uint8_t placements, std::uint8_t level, ibv_wc_status status,
                          ibv_event_type event) {
    flushing_connection link({}, right);
    REQUIRE(link.flush(1, link.right.here(), offset, length, placements, level) == 0);
    CHECK(link.left.wait().status == status);
    CHECK(link.left.state() == IBV_QPS_ERR);
    CHECK(link.right.event().event_type == event);
  };
  for (const std::uint8_t level : {newer::flush_range, newer::flush_region}) {
    for (const std::uint8_t granted : {newer::flush_global, newer::flush_persistent}) {
      const auto other = static_cast<std::uint8_t>(both ^ granted);
      options no_right = with_flush();
      no_right.queue_pair_access &= ~newer::access_to_flush(other);
      for (const std::uint8_t asked : {other, both})
        attempt(no_right, 0, 8, asked, level, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
      no_right = with_flush();
      no_right.region_access &= ~static_cast<int>(newer::access_to_flush(other));
      for (const std::uint8_t asked : {other, both})
        attempt(no_right, 0, 8, asked, level, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
  }
  attempt(with_flush(), 1 << 20, 1, both, newer::flush_range, IBV_WC_REM_ACCESS_ERR,
          IBV_EVENT_QP_ACCESS_ERR);
  attempt(with_flush(), 8, 1 << 20, both, newer::flush_range, IBV_WC_REM_ACCESS_ERR,
          IBV_EVENT_QP_ACCESS_ERR);
  attempt(with_flush(), 0, std::size_t{1} << 63, both, newer::flush_range, IBV_WC_REM_ACCESS_ERR,
          IBV_EVENT_QP_ACCESS_ERR);
  // The first flush has no placement, the second an unknown placement, and the third an unknown
  // level.
  attempt(with_flush(), 0, 8, 0, newer::flush_range, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  attempt(with_flush(), 0, 8, 4, newer::flush_range, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  attempt(with_flush(), 0, 8, both, 2, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST_CASE("a flush counts as a read") {
  flushing_connection link(options{.reads = 0});
  REQUIRE(link.flush(1, link.right.here(), 0, 8) == 0);
  CHECK(link.left.wait().status == IBV_WC_LOC_QP_OP_ERR);
  options no_depth = with_flush();
  no_depth.reads = 0;
  flushing_connection other({}, no_depth);
  REQUIRE(other.flush(1, other.right.here(), 0, 8) == 0);
  CHECK(other.left.wait().status == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("a flush has no data and can be built only by the function for flushes") {
  flushing_connection link;
  const address peer = link.right.here();
  ibv_send_wr request{};
  request.opcode = newer::wr_flush;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {peer.memory, peer.rkey};
  CHECK(link.left.post(request, {}) == EINVAL);
  ibv_wr_start(link.build);
  newer::functions_of(*link.build)
      .wr_flush(link.build, peer.rkey, peer.memory, 8, both, newer::flush_range);
  ibv_wr_set_sge(link.build, link.left.region->lkey, link.left.piece(0, 8).addr, 8);
  CHECK(ibv_wr_complete(link.build) == EINVAL);
  CHECK(link.left.quiet());
  endpoint other;
  CHECK(newer::functions_of(*build_requests_of(other, IBV_QP_EX_WITH_SEND)).wr_flush == nullptr);
}

TEST_CASE("a device that supports flushes reports this") {
  open_context device;
  ibv_device_attr_ex attributes{};
  REQUIRE(ibv_query_device_ex(device.verbs, nullptr, &attributes) == 0);
  CHECK((attributes.device_cap_flags_ex & newer::device_flush) == newer::device_flush);
}

TEST_CASE("the functions for atomic writes and flushes have the offsets of newer headers") {
  // Compares the offsets with those in this build's headers, if the headers contain these members.
  endpoint end;
  ibv_qp_ex* build =
      build_requests_of(end, newer::qp_ex_with_atomic_write | newer::qp_ex_with_flush);
  const auto check = [](auto& pair) {
    const newer::qp_functions& functions = newer::functions_of(pair);
    if constexpr (requires { pair.wr_atomic_write; })
      CHECK(pair.wr_atomic_write == functions.wr_atomic_write);
    if constexpr (requires { pair.wr_flush; }) CHECK(pair.wr_flush == functions.wr_flush);
  };
  check(*build);
}
