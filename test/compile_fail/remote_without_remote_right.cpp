// expect: this memory region grants no remote right: register it with access::remote_read,
// expect: remote_write or remote_atomic
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::local_write;
#else
constexpr auto rights = verbspp::access::local_write | verbspp::access::remote_write;
#endif

auto offer(const verbspp::memory_region<rights>& region) { return region.remote(); }
