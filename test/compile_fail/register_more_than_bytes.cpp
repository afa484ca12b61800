// expect: the device copies bytes: only memory of trivially copyable objects can be registered
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#include <string>
#include <vector>

#ifdef MUST_FAIL
using object = std::string;
#else
using object = char;
#endif

auto add(const verbspp::protection_domain& pd, std::vector<object>& memory) {
  return verbspp::register_memory(pd, memory);
}
