// expect: owns the buffer: std::move(buffer).part
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/buffer_part.hpp>

auto half(verbspp::registered_buffer<> buffer) {
#ifdef MUST_FAIL
  return buffer.part(0, buffer.size() / 2);
#else
  const std::size_t size = buffer.size();
  return std::move(buffer).part(0, size / 2);
#endif
}
