// expect: name the address handle first
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/work/address_handle.hpp>

verbspp::address_handle resolved();

auto destination() {
#ifdef MUST_FAIL
  return resolved().destination(1, verbspp::queue_key(2));
#else
  const auto way = resolved();
  return way.destination(1, verbspp::queue_key(2)).number();
#endif
}
