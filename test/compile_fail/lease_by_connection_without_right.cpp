// expect: a lease by connection gives the memory's own key: register the memory with
// expect: the remote rights that the lease shall grant
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr access_flags given = access::remote_write;
#else
constexpr access_flags given = access::remote_read;
#endif

using shared = shared_buffer<access::local_write | access::remote_read>;

auto grant(channel& to, const shared& memory) {
  return to.lease<given, lease_by::connection>(memory);
}
