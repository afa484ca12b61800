// SPDX-License-Identifier: Apache-2.0
/// \file
/// Pools, hubs and channels of hubs that are created while the program is out of memory.
#include "../sanitized.hpp"
#include "channels.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(VERBSPP_TEST_SANITIZED)

namespace {

constexpr std::size_t unlimited = SIZE_MAX;
/// The number of allocations on this thread that will still succeed. Only allocations of arrays
/// with std::nothrow count.
thread_local std::size_t allocations_left = unlimited;

[[nodiscard]] bool is_exhausted() noexcept {
  if (allocations_left == 0) return true;
  if (allocations_left != unlimited) --allocations_left;
  return false;
}

}  // namespace

// These operators do not throw, so they return null if the memory is really exhausted. They replace
// only the operators for arrays that take std::nothrow. Other allocations use the usual operators.
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (is_exhausted()) return nullptr;
  try {
    return ::operator new[](size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size, std::align_val_t alignment,
                     const std::nothrow_t& /*tag*/) noexcept {
  if (is_exhausted()) return nullptr;
  try {
    return ::operator new[](size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

namespace verbspp::test {

namespace {

/// Calls `make` with memory for 0, 1, 2, ... arrays, until it succeeds. Checks the errors.
/// \returns the number of calls that have failed
template <class Make>
[[nodiscard]] std::size_t failures_without_memory(Make make) {
  for (std::size_t arrays = 0;; ++arrays) {
    allocations_left = arrays;
    const auto made = make();
    allocations_left = unlimited;
    if (made.has_value()) return arrays;
    const error& told = made.assume_error();
    CHECK(told == error_kind::resource_exhausted);
    CHECK(told.native_errno() == ENOMEM);
  }
}

}  // namespace

TEST_CASE("creating a pool, a hub or a hub's channel without memory is an error") {
  allocations_left = 0;
  void* const allocated = ::operator new[](1, std::nothrow);
  allocations_left = unlimited;
  if (allocated != nullptr) {
    ::operator delete[](allocated);
    SKIP("a tool has replaced operator new[]");
  }
  const testbed bed;
  CHECK(failures_without_memory([&] { return message_pool::create(bed.domain, 8, 64); }) >= 1);
  CHECK(failures_without_memory([&] { return channel_hub::create(bed.domain); }) >= 2);
  const auto hub = must(channel_hub::create(bed.domain));
  const std::uint64_t room = hub.room();
  // The first array is allocated before the channel is attached to the hub, the others after that.
  CHECK(failures_without_memory([&] {
          CHECK(hub.room() == room);
          const auto made = bed.domain.build_channel().hub(hub).build();
          return made.has_value() ? result<void>(success()) : result<void>(made.assume_error());
        }) >= 2);
  CHECK(hub.size() == 0);
  CHECK(hub.room() == room);
}

}  // namespace verbspp::test

#endif
