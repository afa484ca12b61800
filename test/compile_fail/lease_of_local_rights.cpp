// expect: a lease grants remote rights and nothing else: name
// expect: access::remote_read, remote_write or remote_atomic
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags given = access::local_write | access::remote_write;
#else
constexpr access_flags given = access::remote_write;
#endif

auto grant(channel& to, const memory_region<access::local_write | access::window_bind>& region) {
  return to.lease<given>(region, 0, 64);
}
