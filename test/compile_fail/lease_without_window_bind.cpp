// expect: this memory lacks access::window_bind: register it with that, or name
// expect: another way to lease it, lease_by::registration or lease_by::connection
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr lease_by way = lease_by::window;
#else
constexpr lease_by way = lease_by::registration;
#endif

auto grant(channel& to, const memory_region<access::local_write>& region) {
  return to.lease<access::remote_write, way>(region, 0, 64);
}
