// expect: borrowed_range
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#include <vector>

auto add(const verbspp::protection_domain& pd, std::vector<char> memory) {
#ifdef MUST_FAIL
  return verbspp::register_memory(pd, std::move(memory));
#else
  return verbspp::register_memory(pd, memory);
#endif
}
