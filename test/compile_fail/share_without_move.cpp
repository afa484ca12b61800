// expect: the handles own the buffer: std::move(buffer).share()
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/shared_buffer.hpp>

auto shared(verbspp::registered_buffer<> buffer) {
#ifdef MUST_FAIL
  return buffer.share();
#else
  return std::move(buffer).share();
#endif
}
