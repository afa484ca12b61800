// expect: while it is in the 'consumed' state
// expect: scatter
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/registered_buffer.hpp>

void keep(verbspp::registered_buffer<> kept);

auto use(verbspp::registered_buffer<> buffer) {
#ifdef MUST_FAIL
  keep(std::move(buffer));
  return buffer.scatter(0, 8);
#else
  auto element = buffer.scatter(0, 8);
  keep(std::move(buffer));
  return element;
#endif
}
