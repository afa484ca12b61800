// expect: a temporary frees its memory: name the buffer first
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/registered_buffer.hpp>

verbspp::registered_buffer<> allocated();

bool is_there() {
#ifdef MUST_FAIL
  return allocated().data() != nullptr;
#else
  const auto buffer = allocated();
  return buffer.data() != nullptr;
#endif
}
