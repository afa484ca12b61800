// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "support/fabric.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>

namespace {

struct domain {
  open_context device;
  ibv_pd* verbs = ibv_alloc_pd(device.verbs);

  int attempt(void* address, std::size_t length, int access) {
    errno = 0;
    ibv_mr* region = ibv_reg_mr(verbs, address, length, access);
    if (region == nullptr) return errno;
    CHECK(region->addr == address);
    CHECK(region->length == length);
    CHECK(region->context == device.verbs);
    CHECK(region->pd == verbs);
    CHECK(ibv_dereg_mr(region) == 0);
    return 0;
  }
};

}  // namespace

TEST_CASE("contradictory access rights of a region are refused") {
  domain where;
  std::vector<char> memory(8192);
  CHECK(where.attempt(memory.data(), memory.size(), 0) == 0);
  CHECK(where.attempt(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(where.attempt(memory.data(), memory.size(), IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(where.attempt(memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(where.attempt(memory.data(), memory.size(), IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
  CHECK(where.attempt(memory.data(), memory.size(),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC) == 0);
  CHECK(where.attempt(memory.data(), memory.size(),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(where.attempt(memory.data(), memory.size(), 1 << 15) == EINVAL);
}

TEST_CASE("memory that isn't mapped can't be registered") {
  domain where;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  CHECK(where.attempt(nullptr, 4096, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  auto* memory = static_cast<char*>(
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  CHECK(where.attempt(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(where.attempt(memory, 0, IBV_ACCESS_LOCAL_WRITE) == EINVAL);
  ::munmap(memory + page, page);
  CHECK(where.attempt(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  CHECK(where.attempt(memory, page, IBV_ACCESS_LOCAL_WRITE) == 0);
  ::munmap(memory, 4 * page);
}

TEST_CASE("read-only memory can be registered for reading only") {
  domain where;
  static const char text[] = "constant";
  auto* memory = const_cast<char*>(text);
  CHECK(where.attempt(memory, sizeof(text), IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(where.attempt(memory, sizeof(text), IBV_ACCESS_LOCAL_WRITE) == EFAULT);
}

TEST_CASE("an iova must have the same offset in its page as the memory") {
  domain where;
  std::vector<char> memory(8192);
  auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  CHECK(refusal([&] {
          return ibv_reg_mr_iova(where.verbs, memory.data(), 100, (address & 4095) + 1, 0);
        }) == EINVAL);
  ibv_mr* region = ibv_reg_mr_iova(where.verbs, memory.data(), 100, 0x10000 + (address & 4095), 0);
  REQUIRE(region != nullptr);
  CHECK(ibv_dereg_mr(region) == 0);
}

TEST_CASE("keys are not reused soon and lkey and rkey differ") {
  domain where;
  std::vector<char> memory(64);
  std::set<std::uint32_t> seen;
  for (int round = 0; round < 1000; ++round) {
    ibv_mr* region = ibv_reg_mr(where.verbs, memory.data(), memory.size(), 0);
    REQUIRE(region != nullptr);
    CHECK(region->lkey != region->rkey);
    CHECK(seen.insert(region->lkey).second);
    CHECK(ibv_dereg_mr(region) == 0);
  }
}

TEST_CASE("a region keeps its keys when it is re-registered") {
  connection link({}, options{.region_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
  ibv_mr* region = link.right.region;
  const std::uint32_t rkey = region->rkey;
  const auto again = [&](int flags, ibv_pd* where, void* address, std::size_t length, int access) {
    errno = 0;
    return ibv_rereg_mr(region, flags, where, address, length, access);
  };
  constexpr int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  CHECK(again(0, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EINVAL);
  CHECK(again(8, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(again(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(again(IBV_REREG_MR_CHANGE_PD, link.left.domain, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, link.right.memory.data(), 8, everything) ==
        IBV_REREG_MR_ERR_INPUT);
  CHECK(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE) ==
        IBV_REREG_MR_ERR_CMD);
  CHECK(errno == EINVAL);
  CHECK(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 8, 0) == IBV_REREG_MR_ERR_CMD);
  CHECK(errno == EFAULT);

  REQUIRE(again(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, everything) == 0);
  CHECK(region->rkey == rkey);
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, link.right.here()) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);

  REQUIRE(again(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, link.right.memory.data() + 64, 64, 0) ==
          0);
  CHECK(region->addr == link.right.memory.data() + 64);
  CHECK(region->length == 64);
  REQUIRE(link.left.write(2, {link.left.piece(0, 64)}, link.right.here(), 64) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);

  ibv_pd* other = ibv_alloc_pd(link.right.context);
  REQUIRE(again(IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0) == 0);
  CHECK(region->pd == other);
  CHECK(ibv_dealloc_pd(other) == EBUSY);
  REQUIRE(link.left.write(3, {link.left.piece(0, 64)}, link.right.here(), 64) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  REQUIRE(ibv_dereg_mr(region) == 0);
  link.right.region = nullptr;
  CHECK(ibv_dealloc_pd(other) == 0);
}
