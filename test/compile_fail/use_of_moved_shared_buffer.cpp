// expect: while it is in the 'consumed' state
// expect: scatter
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/shared_buffer.hpp>

void keep(verbspp::shared_buffer<> kept);

auto use(verbspp::shared_buffer<> buffer) {
#ifdef MUST_FAIL
  keep(std::move(buffer));
#else
  keep(buffer);
#endif
  return buffer.scatter(0, 8);
}
