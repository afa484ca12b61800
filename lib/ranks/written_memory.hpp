// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

// Both compilers know this spelling.
#define VERBSPP_RANKS_NOT_WATCHED __attribute__((no_sanitize("thread")))

// What the device writes and reads by itself: for ThreadSanitizer, softverbs is a thread that knows
// no locks of ours.

[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline std::uint64_t look(
    const std::byte* at) noexcept {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline void show(std::byte* at,
                                                             std::uint64_t value) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline void take_bytes(std::byte* to,
                                                                   const std::byte* from,
                                                                   std::size_t size) noexcept {
  for (std::size_t i = 0; i < size; ++i)
    *static_cast<volatile std::byte*>(to + i) = *static_cast<const volatile std::byte*>(from + i);
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
