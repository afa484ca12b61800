// expect: while it is in the 'consumed' state
// expect: gather
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

using region = verbspp::memory_region<verbspp::access::local_write>;
void keep(region kept);

auto use(region region) {
#ifdef MUST_FAIL
  keep(std::move(region));
  return region.gather(0, 8);
#else
  auto element = region.gather(0, 8);
  keep(std::move(region));
  return element;
#endif
}
