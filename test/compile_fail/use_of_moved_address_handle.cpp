// expect: while it is in the 'consumed' state
// expect: destination
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/work/address_handle.hpp>

void keep(verbspp::address_handle kept);

auto use(verbspp::address_handle way) {
#ifdef MUST_FAIL
  keep(std::move(way));
  return way.destination(1, verbspp::queue_key(2)).handle();
#else
  auto* const handle = way.destination(1, verbspp::queue_key(2)).handle();
  keep(std::move(way));
  return handle;
#endif
}
