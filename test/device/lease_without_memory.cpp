// SPDX-License-Identifier: Apache-2.0
/// \file
/// Leases that are dropped while the program is out of memory.
#include "../sanitized.hpp"
#include "failing_verb.hpp"
#include "leases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

#if !defined(VERBSPP_TEST_SANITIZED)

namespace {

thread_local bool has_no_memory = false;

}  // namespace

void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return has_no_memory ? nullptr : ::operator new(size);
}

namespace verbspp::test::leases {

TEST_CASE("memory that the device still uses is not freed even if memory is exhausted") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  lease_bed bed;
  std::array<std::byte, 64> mark{};
  mark.fill(std::byte{0x33});
  set_destroy_failure_handler([](const error& /*cause*/) noexcept {});
  const std::byte* where = nullptr;
  {
    auto lease = must(bed.owner.lease<both_ways, lease_by::registration>(
        must(whole_buffer::allocate(bed.domain, 64))));
    std::copy(mark.begin(), mark.end(), lease.memory().begin());
    where = lease.memory().data();
    const failing_verb refused("ibv_dereg_mr", EBUSY, convention::returns_errno);
    has_no_memory = true;
    {
      const auto dropped = std::move(lease);
    }
    has_no_memory = false;
    CHECK(refused.calls() == 1);
  }
  CHECK(std::equal(mark.begin(), mark.end(), where));
}

}  // namespace verbspp::test::leases

#endif
