// expect: work can own a registered_buffer or a part of one, whose bytes live as long as it does
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/work_memory.hpp>

template <class Memory>
  requires verbspp::WorkMemory<Memory>
void give(Memory&& memory);

#ifdef MUST_FAIL
void use(verbspp::memory_region<> memory) { give(std::move(memory)); }
#else
void use(verbspp::registered_buffer<> memory) { give(std::move(memory)); }
#endif
