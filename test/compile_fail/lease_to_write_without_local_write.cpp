// expect: a lease of access::remote_write or access::remote_atomic is of memory that
// expect: was registered with access::local_write
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags given = access::remote_write;
#else
constexpr access_flags given = access::remote_read;
#endif

auto grant(channel& to, const memory_region<access::window_bind>& region) {
  return to.lease<given>(region, 0, 64);
}
