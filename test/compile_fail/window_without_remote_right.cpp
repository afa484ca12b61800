// expect: a memory window gives remote rights and nothing else: name access::remote_read,
// expect: remote_write or remote_atomic
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags given = access::local_write;
#else
constexpr access_flags given = access::remote_write;
#endif

auto show(const memory_region<access::local_write | access::window_bind>& region) {
  return region.window_part<given>(0, 64);
}
