// expect: only elements that are trivially copyable and trivially default constructible can be in
// it SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/registered_buffer.hpp>

#include <string>

#ifdef MUST_FAIL
using element = std::string;
#else
using element = int;
#endif

auto add(const verbspp::protection_domain& pd) {
  return verbspp::registered_buffer<verbspp::access::local_write, element>::allocate(pd, 8);
}
