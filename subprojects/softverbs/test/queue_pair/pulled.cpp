// SPDX-License-Identifier: Apache-2.0
// Writes through windows of another process. That process reads the data of large ones from the
// memory of the writing process.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"
#include "support/tracee.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

/// Returns options for as much memory as the other process has.
options as_large() {
  options result = patient();
  result.memory = 3 << 20;
  return result;
}

/// Another process, which grants access to its memory through a window.
struct lender {
  explicit lender(endpoint& end) : there(other.meet(end)) {
    if (shares_memory()) REQUIRE(becomes_direct(end, there));
    other.hear(&there.rkey, sizeof(there.rkey));
  }
  std::vector<unsigned char> memory() {
    std::vector<unsigned char> found(there.length);
    other.tell('m');
    other.hear(found.data(), found.size());
    return found;
  }

  peer other{"lender"};
  address there;
};

/// Returns true once the process is about to read from the memory of this process. It first
/// verifies that this is still the same process.
bool is_about_to_pull(tracee& thread) {
  return thread.reaches(SYS_process_vm_readv) && thread.reaches(SYS_process_vm_readv);
}

}  // namespace

TEST_CASE("data of any length is written through a window of another process") {
  endpoint end(as_large());
  lender to(end);
  std::vector<unsigned char> expected = to.memory();
  const std::uint32_t packet = 32 * 1024;
  unsigned seed = 0;
  for (const std::uint32_t length :
       {1U, packet - 1, packet, packet + 1, 8 * packet + 1, 32 * packet - 1, 32 * packet,
        32 * packet + 1, 40 * packet, 64 * packet + 5, 96 * packet}) {
    CAPTURE(length);
    const std::uint32_t offset = to.there.length - length;
    fill(end, 0, end.memory.size(), ++seed);
    REQUIRE(end.write(seed, {end.piece(offset / 2, length)}, to.there, offset) == 0);
    const ibv_wc completed = end.wait();
    CHECK(completed.status == IBV_WC_SUCCESS);
    CHECK(completed.wr_id == seed);
    std::copy_n(end.memory.begin() + offset / 2, length, expected.begin() + offset);
    CHECK(to.memory() == expected);
  }
  // Data in several pieces, and several requests in the queue.
  fill(end, 0, end.memory.size(), ++seed);
  REQUIRE(end.write(1, {end.piece(5, 100000)}, to.there, 0, 0) == 0);
  REQUIRE(end.write(2, {end.piece(7, 100000), end.piece(half, 100000)}, to.there, 100000, 0) == 0);
  REQUIRE(end.write(3, {end.piece(9, 300000)}, to.there, 300000) == 0);
  CHECK(end.wait().wr_id == 3);
  std::copy_n(end.memory.begin() + 5, 100000, expected.begin());
  std::copy_n(end.memory.begin() + 7, 100000, expected.begin() + 100000);
  std::copy_n(end.memory.begin() + half, 100000, expected.begin() + 200000);
  std::copy_n(end.memory.begin() + 9, 300000, expected.begin() + 300000);
  CHECK(to.memory() == expected);
  to.other.finish();
}

TEST_CASE("nothing is written through a window of another process after its invalidation") {
  endpoint end(as_large());
  lender to(end);
  ibv_wc completion{};
  for (int count = 0; completion.status == IBV_WC_SUCCESS; ++count) {
    REQUIRE(end.write(1, {end.piece(0, 1 << 20)}, to.there) == 0);
    completion = end.wait();
    if (count == 0) to.other.tell('i');
  }
  CHECK(completion.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(to.other.wait() == 0);
}

TEST_CASE("data is not acknowledged if its sender abandons it before it is read") {
  if (!may_be_traced()) return;
  const bool is_region = GENERATE(true, false);
  CAPTURE(is_region);
  endpoint end(as_large());
  lender to(end);
  tracee thread(thread_of(to.other.process(), "softverbs"));
  // steady: after 2 ms, the other process verifies again that this is the same process
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  REQUIRE(end.write(1, {end.piece(0, 1 << 17)}, to.there) == 0);
  REQUIRE(is_about_to_pull(thread));
  if (is_region) {
    REQUIRE(ibv_dereg_mr(end.region) == 0);
    end.region = nullptr;
  } else {
    REQUIRE(end.change(IBV_QPS_ERR) == 0);
  }
  thread.let_go();
  CHECK(end.wait().status == (is_region ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR));
  to.other.finish();
}

TEST_CASE("a target in RTR gets the data of large writes in packets") {
  peer other("listener");
  endpoint end(with_atomics());
  const address there = other.meet(end);
  if (shares_memory()) REQUIRE(becomes_direct(end, there));
  fill(end, 0, end.memory.size(), 1);
  // An atomic operation is in flight before each write with immediate data.
  for (std::uint64_t id = 0; id < 20; id += 2) {
    REQUIRE(end.fetch_and_add(id, end.piece(half, 8), there, 1, half) == 0);
    ibv_send_wr request{};
    request.wr_id = id + 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {there.memory, there.rkey};
    REQUIRE(end.post(request, {end.piece(0, 1 << 16)}) == 0);
    CHECK(end.wait().wr_id == id);
    const ibv_wc completed = end.wait();
    CHECK(completed.wr_id == id + 1);
    CHECK(completed.status == IBV_WC_SUCCESS);
  }
  std::vector<unsigned char> found(1 << 16);
  other.tell('m');
  other.hear(found.data(), found.size());
  CHECK(std::equal(found.begin(), found.end(), end.memory.begin()));
  other.finish();
}

TEST_CASE("a write of memory that isn't mapped fails at the writer") {
  endpoint end(as_large());
  lender to(end);
  constexpr std::size_t length = 1 << 18;
  void* const mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  ibv_mr* const region = ibv_reg_mr(end.domain, mapped, length, int{IBV_ACCESS_LOCAL_WRITE});
  REQUIRE(region != nullptr);
  REQUIRE(::munmap(static_cast<char*>(mapped) + length / 2, length / 2) == 0);
  REQUIRE(end.write(1, {{reinterpret_cast<std::uintptr_t>(mapped), length, region->lkey}},
                    to.there) == 0);
  CHECK(end.wait().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ibv_dereg_mr(region) == 0);
  REQUIRE(::munmap(mapped, length / 2) == 0);
  to.other.finish();
}
