// SPDX-License-Identifier: Apache-2.0
/// \file
/// Pools and hubs that are created while the program is out of memory.
#include "../sanitized.hpp"
#include "channels.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(VERBSPP_TEST_SANITIZED)

namespace {

constexpr std::size_t all_there_is = SIZE_MAX;
/// The number of allocations on this thread that will still succeed. Only allocations of arrays
/// with std::nothrow count.
thread_local std::size_t allocations_left = all_there_is;

[[nodiscard]] bool is_exhausted() noexcept {
  if (allocations_left == 0) return true;
  if (allocations_left != all_there_is) --allocations_left;
  return false;
}

}  // namespace

// Replaces only the operators for arrays that take std::nothrow. Other allocations use the usual
// operators.
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return is_exhausted() ? nullptr : ::operator new[](size);
}
void* operator new[](std::size_t size, std::align_val_t alignment,
                     const std::nothrow_t& /*tag*/) noexcept {
  return is_exhausted() ? nullptr : ::operator new[](size, alignment);
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
    allocations_left = all_there_is;
    if (made.has_value()) return arrays;
    const error& told = made.assume_error();
    CHECK(told == error_kind::resource_exhausted);
    CHECK(told.native_errno() == ENOMEM);
  }
}

}  // namespace

TEST_CASE("creating a pool or a hub or its channel without memory is an error") {
  const testbed bed;
  CHECK(failures_without_memory([&] { return message_pool::create(bed.domain, 8, 64); }) >= 1);
  CHECK(failures_without_memory([&] { return channel_hub::create(bed.domain); }) >= 2);
  const auto hub = must(channel_hub::create(bed.domain));
  const std::uint64_t room = hub.room();
  CHECK(failures_without_memory([&] {
          const auto made = bed.domain.build_channel().hub(hub).build();
          return made.has_value() ? result<void>(success()) : result<void>(made.assume_error());
        }) >= 1);
  CHECK(hub.size() == 0);
  CHECK(hub.room() == room);
}

}  // namespace verbspp::test

#endif
