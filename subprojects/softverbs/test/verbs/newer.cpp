// SPDX-License-Identifier: Apache-2.0
// Verbs that older headers don't declare, which the tests look up by name, and a field that a
// structure in older headers lacks.
#include "base/newer_verbs.hpp"
#include "catch.hpp"
#include "support/fabric.hpp"

#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace newer = softverbs::newer;

namespace {

template <typename Function>
Function* verb(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  REQUIRE(found != nullptr);
  return found;
}

using register_extended = ibv_mr*(ibv_pd*, newer::mr_init_attr*);

}  // namespace

TEST_CASE("newer verbs: a region can be registered with the attributes in a structure") {
  const open_context device;
  ibv_pd* const domain = ibv_alloc_pd(device.verbs);
  alignas(64) std::array<std::byte, 64> memory{};
  // The device can only translate addresses by whole pages.
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  auto* const extended = verb<register_extended>("ibv_reg_mr_ex");
  const auto attempt = [&](std::uint64_t fields) {
    newer::mr_init_attr asked{};
    asked.length = memory.size();
    asked.access = IBV_ACCESS_LOCAL_WRITE;
    asked.comp_mask = fields;
    asked.iova = 4096 + offset;
    asked.address = memory.data();
    errno = 0;
    ibv_mr* const region = extended(domain, &asked);
    if (region == nullptr) return errno;
    CHECK(region->addr == memory.data());
    CHECK(region->length == memory.size());
    CHECK(region->context == device.verbs);
    CHECK(ibv_dereg_mr(region) == 0);
    return 0;
  };
  CHECK(attempt(newer::mr_address) == 0);
  CHECK(attempt(newer::mr_address | newer::mr_iova) == 0);
  CHECK(attempt(0) == EINVAL);
  CHECK(attempt(newer::mr_address | newer::mr_offset) == EINVAL);
  CHECK(attempt(newer::mr_address | newer::mr_descriptor) == EINVAL);
  // DMA handles and unknown flags are refused.
  CHECK(attempt(newer::mr_address | 1U << 4) == EOPNOTSUPP);
  CHECK(attempt(newer::mr_address | std::uint64_t{1} << 40) == EOPNOTSUPP);
  CHECK(ibv_dealloc_pd(domain) == 0);
}

TEST_CASE("newer verbs: parts of a buffer from ibv_alloc_buf can be registered") {
  const open_context device;
  ibv_pd* const domain = ibv_alloc_pd(device.verbs);
  ibv_pd* const other = ibv_alloc_pd(device.verbs);
  auto* const allocate = verb<void*(ibv_pd*, std::size_t, void**)>("ibv_alloc_buf");
  auto* const release = verb<void(void*)>("ibv_free_buf");
  auto* const part = verb<ibv_mr*(ibv_pd*, void*, void*, std::size_t, int)>("ibv_reg_buf_mr");
  auto* const descriptor_of = verb<int(void*)>("ibv_export_buf_dmabuf_fd");
  constexpr std::size_t size = 10'000;
  void* buffer = nullptr;
  auto* const start = static_cast<std::byte*>(allocate(domain, size, &buffer));
  REQUIRE(start != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(start) % 4096 == 0);
  const auto attempt = [&](ibv_pd* of, std::byte* from, std::size_t length) {
    errno = 0;
    ibv_mr* const region = part(of, buffer, from, length, IBV_ACCESS_LOCAL_WRITE);
    if (region == nullptr) return errno;
    CHECK(region->addr == from);
    CHECK(ibv_dereg_mr(region) == 0);
    return 0;
  };
  CHECK(attempt(domain, start, size) == 0);
  CHECK(attempt(domain, start + 100, size - 100) == 0);
  CHECK(attempt(domain, start + 100, size) == EINVAL);
  CHECK(attempt(domain, start - 1, 1) == EINVAL);
  CHECK(attempt(other, start, size) == EINVAL);
  CHECK(descriptor_of(buffer) == -1);
  CHECK(errno == ENODATA);
  release(buffer);
  CHECK(ibv_dealloc_pd(other) == 0);
  CHECK(ibv_dealloc_pd(domain) == 0);
}

TEST_CASE("newer verbs: a port reports its speed in units of 100 Mb/s") {
  const open_context device;
  auto* const query =
      verb<int(ibv_context*, std::uint32_t, std::uint64_t*)>("ibv_query_port_speed");
  std::uint64_t speed = 0;
  CHECK(query(device.verbs, 1, &speed) == 0);
  CHECK(speed == 1000);
  CHECK(query(device.verbs, 0, &speed) == EINVAL);
  CHECK(query(device.verbs, 2, &speed) == EINVAL);
}

TEST_CASE("newer verbs: a port's attributes have a wider field for the speed of a lane") {
  const open_context device;
  verbs_context* const extended = verbs_get_ctx(device.verbs);
  REQUIRE(extended != nullptr);
  // The structure as newer headers define it, with a member behind it that must not change.
  struct attributes {
    alignas(ibv_port_attr) std::array<std::byte, newer::port_speed_offset> known;
    std::uint32_t speed;
    std::uint32_t more;
  } found;
  std::memset(&found, 0xff, sizeof(found));
  const auto query = [&](std::size_t size) {
    return extended->query_port(device.verbs, 1, reinterpret_cast<ibv_port_attr*>(&found), size);
  };
  // In older headers, the structure ends before this field.
  CHECK(query(sizeof(found.known)) == 0);
  CHECK(found.speed == ~std::uint32_t{0});
  CHECK(query(offsetof(attributes, more)) == 0);
  CHECK(found.speed == reinterpret_cast<const ibv_port_attr*>(&found)->active_speed);
  CHECK(found.more == ~std::uint32_t{0});
}
