// expect: local_key
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

auto remote(const verbspp::memory_region<verbspp::access::remote_read>& region) {
#ifdef MUST_FAIL
  const auto key = region.lkey();
#else
  const auto key = region.rkey();
#endif
  return verbspp::remote_memory<verbspp::access::remote_read>(0, 64, key);
}
