// expect: this memory region lacks access::window_bind: it was not registered for memory windows to
// expect: be bound to it
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_read;
#else
constexpr auto rights = verbspp::access::remote_read | verbspp::access::window_bind;
#endif

auto show(const verbspp::memory_region<rights>& region) {
  return region.window_part<verbspp::access::remote_read>(0, 64);
}
