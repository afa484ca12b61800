// variants: 3
// expect: a temporary
// expect-gcc: use of deleted function
// expect-clang: deleted
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/shared_buffer.hpp>

verbspp::shared_buffer<> shared();
verbspp::buffer_part<verbspp::registered_buffer<>> owned_part();

bool is_there() {
#if !defined(MUST_FAIL)
  const auto handle = shared();
  const auto part = handle.part(0, 1).value();
  const auto owner = owned_part();
  return handle.data() != nullptr && part.data() != nullptr && owner.data() != nullptr;
#elif MUST_FAIL == 1
  return shared().data() != nullptr;
#elif MUST_FAIL == 2
  return shared().part(0, 1).value().data() != nullptr;
#else
  return owned_part().data() != nullptr;
#endif
}
