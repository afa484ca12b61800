// expect: access::remote_write and access::remote_atomic through a memory window need a region with
// expect: access::local_write
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::window_bind;
#else
constexpr auto rights = verbspp::access::window_bind | verbspp::access::local_write;
#endif

auto show(const verbspp::memory_region<rights>& region) {
  return region.window_part<verbspp::access::remote_write>(0, 64);
}
