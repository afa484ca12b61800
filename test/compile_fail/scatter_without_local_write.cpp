// expect: this memory region lacks access::local_write: the device may not scatter received or read
// expect: data into it
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_read;
#else
constexpr auto rights = verbspp::access::remote_read | verbspp::access::local_write;
#endif

auto whole(const verbspp::memory_region<rights>& region) { return region.scatter(); }
