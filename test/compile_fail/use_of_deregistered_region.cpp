// expect: while it is in the 'consumed' state
// expect: remote
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

auto offer(verbspp::memory_region<verbspp::access::remote_read> region) {
#ifdef MUST_FAIL
  static_cast<void>(std::move(region).deregister());
  return region.remote();
#else
  auto offered = region.remote();
  static_cast<void>(std::move(region).deregister());
  return offered;
#endif
}
