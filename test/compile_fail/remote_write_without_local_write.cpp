// expect: access::remote_write and access::remote_atomic need access::local_write as well
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_write;
#else
constexpr auto rights = verbspp::access::remote_write | verbspp::access::local_write;
#endif

auto add(const verbspp::protection_domain& pd, std::span<std::byte> memory) {
  return verbspp::register_memory<rights>(pd, memory);
}
