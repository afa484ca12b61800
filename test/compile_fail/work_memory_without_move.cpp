// expect: work that owns its memory takes it over: write std::move(buffer)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/work_memory.hpp>

template <class Memory>
  requires verbspp::WorkMemory<Memory>
void give(Memory&& memory);

void use(verbspp::registered_buffer<> buffer) {
#ifdef MUST_FAIL
  give(buffer);
#else
  give(std::move(buffer));
#endif
}
