// expect: this remote memory lacks access::remote_atomic: its owner did not grant
// expect: atomic operations
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/remote_word.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags rights = access::remote_write;
#else
constexpr access_flags rights = access::remote_atomic;
#endif

auto word(const remote_memory<rights>& memory) { return remote_word::at(memory); }
