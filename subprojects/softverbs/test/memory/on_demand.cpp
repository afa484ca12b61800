// SPDX-License-Identifier: Apache-2.0
#include "base/newer_verbs.hpp"
#include "catch.hpp"
#include "support/fabric.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace {

constexpr int on_demand_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND;

/// Two pages that are not accessible at first.
struct absent_pages {
  absent_pages() {
    REQUIRE(start != MAP_FAILED);
    allow(PROT_NONE);
  }
  absent_pages(const absent_pages&) = delete;
  absent_pages& operator=(const absent_pages&) = delete;
  ~absent_pages() { ::munmap(start, 2 * page); }
  void allow(int protection) const { REQUIRE(::mprotect(start, 2 * page, protection) == 0); }
  /// True if both pages are in memory.
  bool are_there() const {
    std::array<unsigned char, 2> resident{};
    REQUIRE(::mincore(start, 2 * page, resident.data()) == 0);
    return (resident[0] & 1) != 0 && (resident[1] & 1) != 0;
  }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(start); }

  std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* start =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

/// Pages that the right end has registered so that the left end can access them.
struct offer {
  offer() : region(ibv_reg_mr(link.right.domain, pages.start, 2 * pages.page, on_demand_rights)) {
    REQUIRE(region != nullptr);
    there.memory = pages.address();
    there.rkey = region->rkey;
  }
  offer(const offer&) = delete;
  offer& operator=(const offer&) = delete;
  ~offer() { ibv_dereg_mr(region); }

  absent_pages pages;
  connection link;
  ibv_mr* region;
  address there{};
};

ibv_mr* register_everything(ibv_pd* domain, int rights = on_demand_rights) {
  errno = 0;
  return ibv_reg_mr(domain, nullptr, SIZE_MAX, rights);
}

/// Returns true if the kernel can bring in pages on request. Kernels before version 5.14 can't, and
/// ibv_advise_mr then accepts valid advice without any effect.
bool populates() {
  constexpr int populate_read = 22;
  const absent_pages pages;
  pages.allow(PROT_READ);
  return ::madvise(pages.start, pages.page, populate_read) == 0;
}

int advise(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge piece) {
  return ibv_advise_mr(domain, advice, flags, &piece, 1);
}

}  // namespace

TEST_CASE("the device reports that it supports on-demand paging") {
  open_context device;
  ibv_device_attr_ex described{};
  REQUIRE(ibv_query_device_ex(device.verbs, nullptr, &described) == 0);
  CHECK(described.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  constexpr std::uint32_t all = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV |
                                softverbs::newer::odp_flush | softverbs::newer::odp_atomic_write;
  CHECK(described.odp_caps.per_transport_caps.rc_odp_caps == all);
  CHECK(described.xrc_odp_caps == all);
  CHECK((described.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_READ) == 0);
}

TEST_CASE("paged on demand: a peer's access to pages fails if one is missing") {
  offer target;
  SECTION("both pages are missing") {
    REQUIRE(target.link.left.write(1, {target.link.left.piece(0, 8)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
    CHECK(target.link.right.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  }
  SECTION("the second page is missing") {
    REQUIRE(::mprotect(target.pages.start, target.pages.page, PROT_READ | PROT_WRITE) == 0);
    const auto size = static_cast<std::uint32_t>(2 * target.pages.page);
    REQUIRE(target.link.left.read(1, {target.link.left.piece(0, 8)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_SUCCESS);
    REQUIRE(target.link.left.read(2, {target.link.left.piece(0, size)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("the pages are read-only and are written") {
    target.pages.allow(PROT_READ);
    REQUIRE(target.link.left.read(1, {target.link.left.piece(0, 8)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_SUCCESS);
    REQUIRE(target.link.left.write(2, {target.link.left.piece(0, 8)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("the pages are present") {
    target.pages.allow(PROT_READ | PROT_WRITE);
    target.link.left.memory[0] = 77;
    REQUIRE(target.link.left.write(1, {target.link.left.piece(0, 8)}, target.there) == 0);
    CHECK(target.link.left.wait().status == IBV_WC_SUCCESS);
    CHECK(*static_cast<const unsigned char*>(target.pages.start) == 77);
  }
}

TEST_CASE("paged on demand: sending from or receiving into missing pages fails") {
  offer target;
  const ibv_sge piece{target.pages.address(), 8, target.region->lkey};
  endpoint& left = target.link.left;
  endpoint& right = target.link.right;
  SECTION("sending from missing pages") {
    REQUIRE(left.post_receive(1, {left.piece(0, 8)}) == 0);
    REQUIRE(right.send(1, {piece}) == 0);
    CHECK(right.wait().status == IBV_WC_LOC_PROT_ERR);
  }
  SECTION("receiving into missing pages") {
    REQUIRE(right.post_receive(1, {piece}) == 0);
    REQUIRE(left.send(1, {left.piece(0, 8)}) == 0);
    CHECK(left.wait().status == IBV_WC_REM_OP_ERR);
    CHECK(right.wait().status == IBV_WC_LOC_PROT_ERR);
  }
  SECTION("receiving after the pages have become available") {
    REQUIRE(right.post_receive(1, {piece}) == 0);
    target.pages.allow(PROT_READ | PROT_WRITE);
    left.memory[0] = 5;
    REQUIRE(left.send(1, {left.piece(0, 8)}) == 0);
    CHECK(left.wait().status == IBV_WC_SUCCESS);
    CHECK(right.wait().status == IBV_WC_SUCCESS);
    CHECK(*static_cast<const unsigned char*>(target.pages.start) == 5);
  }
}

TEST_CASE("paged on demand: the whole address space can be registered as one region") {
  connection link;
  ibv_mr* everything = register_everything(link.right.domain);
  REQUIRE(everything != nullptr);
  // These pages are mapped after the registration.
  const absent_pages pages;
  pages.allow(PROT_READ | PROT_WRITE);
  address there{};
  there.memory = pages.address();
  there.rkey = everything->rkey;
  link.left.memory[0] = 42;
  REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, there) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(*static_cast<const unsigned char*>(pages.start) == 42);
  REQUIRE(link.left.post_receive(2, {link.left.piece(64, 8)}) == 0);
  REQUIRE(link.right.send(2, {{pages.address(), 8, everything->lkey}}) == 0);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.memory[64] == 42);
  there.memory = 0;
  REQUIRE(link.left.write(3, {link.left.piece(0, 8)}, there) == 0);
  CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(ibv_dereg_mr(everything) == 0);
}

TEST_CASE("paged on demand: invalid registrations are still refused") {
  endpoint end;
  CHECK(register_everything(end.domain, on_demand_rights & ~IBV_ACCESS_ON_DEMAND) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(register_everything(end.domain, on_demand_rights | IBV_ACCESS_MW_BIND) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(register_everything(end.domain, int{IBV_ACCESS_REMOTE_WRITE} | IBV_ACCESS_ON_DEMAND) ==
        nullptr);
  CHECK(errno == EINVAL);
  CHECK(refusal([&] { return ibv_reg_mr(end.domain, end.memory.data(), 0, on_demand_rights); }) ==
        EINVAL);
}

TEST_CASE("advice makes the pages of on-demand regions present") {
  const absent_pages pages;
  endpoint end;
  ibv_mr* region = ibv_reg_mr(end.domain, pages.start, 2 * pages.page, on_demand_rights);
  REQUIRE(region != nullptr);
  const ibv_sge all{pages.address(), static_cast<std::uint32_t>(2 * pages.page), region->lkey};
  constexpr auto reading = IBV_ADVISE_MR_ADVICE_PREFETCH;
  constexpr auto writing = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  constexpr std::uint32_t waits = IBV_ADVISE_MR_FLAG_FLUSH;
  // If the call does not wait for the pages, it does not report that they can't be brought in.
  CHECK(advise(end.domain, reading, 0, all) == 0);
  if (populates()) CHECK(advise(end.domain, reading, waits, all) == EFAULT);
  pages.allow(PROT_READ | PROT_WRITE);
  CHECK(advise(end.domain, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, waits, all) == 0);
  CHECK_FALSE(pages.are_there());
  CHECK(advise(end.domain, writing, waits, all) == 0);
  if (populates()) CHECK(pages.are_there());
  ibv_sge beyond = all;
  beyond.addr += pages.page;
  CHECK(advise(end.domain, reading, waits, beyond) == EFAULT);

  ibv_sge unknown = all;
  unknown.lkey ^= 1;
  CHECK(advise(end.domain, reading, 0, unknown) == ENOENT);
  CHECK(advise(end.domain, reading, 0, end.piece(0, 8)) == ENOENT);
  ibv_pd* other = ibv_alloc_pd(end.context);
  CHECK(advise(other, reading, 0, all) == EPERM);
  CHECK(ibv_dealloc_pd(other) == 0);
  CHECK(advise(end.domain, reading, 2, all) == EINVAL);
  CHECK(ibv_advise_mr(end.domain, reading, 0, nullptr, 0) == EINVAL);
  CHECK(advise(end.domain, static_cast<ibv_advise_mr_advice>(3), 0, all) == EOPNOTSUPP);
  CHECK(ibv_dereg_mr(region) == 0);

  ibv_mr* constant = ibv_reg_mr(end.domain, pages.start, pages.page, int{IBV_ACCESS_ON_DEMAND});
  REQUIRE(constant != nullptr);
  CHECK(advise(end.domain, writing, 0, {pages.address(), 8, constant->lkey}) == EPERM);
  CHECK(ibv_dereg_mr(constant) == 0);
}

TEST_CASE("advice with more entries than the kernel accepts at once is refused") {
  endpoint end;
  const absent_pages pages;
  ibv_mr* region = ibv_reg_mr(end.domain, pages.start, 2 * pages.page, on_demand_rights);
  REQUIRE(region != nullptr);
  constexpr std::uint32_t most = UINT16_MAX / sizeof(ibv_sge);
  std::vector<ibv_sge> pieces(most + 1, {pages.address(), 8, region->lkey});
  const auto advise_of = [&](std::uint32_t count) {
    return ibv_advise_mr(end.domain, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pieces.data(), count);
  };
  CHECK(advise_of(most) == 0);
  CHECK(advise_of(most + 1) == EINVAL);
  CHECK(ibv_dereg_mr(region) == 0);
}
