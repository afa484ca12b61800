// expect: this remote memory lacks access::remote_write: its owner did not grant writes
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags given = access::remote_read;
#else
constexpr access_flags given = access::remote_write;
#endif

// The rights are the window's, whatever the region grants by itself.
remote_destination far_end(
    const memory_region<access::local_write | access::remote_write | access::window_bind>& region,
    verbspp::remote_key rkey) {
  return region.window_part<given>(0, 64).value().remote(rkey);
}
