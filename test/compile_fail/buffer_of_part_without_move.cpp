// expect: the part gives the buffer back: std::move(part).buffer()
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/buffer_part.hpp>

auto whole(verbspp::buffer_part<verbspp::registered_buffer<>> part) {
#ifdef MUST_FAIL
  return part.buffer();
#else
  return std::move(part).buffer();
#endif
}
