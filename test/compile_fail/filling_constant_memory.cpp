// expect: only memory that was registered with access::local_write can be filled
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/shared_buffer.hpp>

template <class Memory>
  requires verbspp::SharedMemory<Memory> && verbspp::FillableMemory<Memory>
void fill(const Memory& memory);

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::local_read;
#else
constexpr auto rights = verbspp::access::local_write;
#endif

void use(const verbspp::shared_buffer<rights>& memory) { fill(memory); }
