// expect: volatile memory cannot be registered
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
using memory = std::span<volatile char>;
#else
using memory = std::span<char>;
#endif

auto register_it(const verbspp::protection_domain& domain, memory bytes) {
  return verbspp::register_memory(domain, bytes);
}
