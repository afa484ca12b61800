// expect: constant memory cannot be registered with access::local_write
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
using object = const int;
#else
using object = int;
#endif

auto add(const verbspp::protection_domain& pd, std::span<object> memory) {
  return verbspp::register_memory<verbspp::access::local_write>(pd, memory);
}
