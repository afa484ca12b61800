// SPDX-License-Identifier: Apache-2.0

// Leases that give the peer of a channel access to memory.

#include <verbspp/channel.hpp>

using namespace verbspp;

// case: lease_by_connection_without_right
// expect: a lease by connection gives the peer the memory's own key: register the memory with
// expect: the remote rights that the lease grants
constexpr access_flags given = BAD(access::remote_write) GOOD(access::remote_read);
using shared = shared_buffer<access::local_write | access::remote_read>;

auto grant(channel& to, const shared& memory) {
  return to.lease<given, lease_by::connection>(memory);
}

// case: lease_of_local_rights
// expect: a lease grants only access::remote_read, remote_write and remote_atomic: name at least one
// expect: of them, and no other right
constexpr access_flags given = access::remote_write BAD(| access::local_write);
auto grant(channel& to, const memory_region<access::local_write | access::window_bind>& region) {
  return to.lease<given>(region, 0, 64);
}

// case: lease_to_write_without_local_write
// expect: a lease that grants access::remote_write or access::remote_atomic requires memory that
// expect: was registered with access::local_write
constexpr access_flags given = BAD(access::remote_write) GOOD(access::remote_read);
auto grant(channel& to, const memory_region<access::window_bind>& region) {
  return to.lease<given>(region, 0, 64);
}

// case: lease_without_window_bind
// expect: this memory lacks access::window_bind: register it with that right, or choose
// expect: another way to lease it, lease_by::registration or lease_by::connection
constexpr lease_by way = BAD(lease_by::window) GOOD(lease_by::registration);
auto grant(channel& to, const memory_region<access::local_write>& region) {
  return to.lease<access::remote_write, way>(region, 0, 64);
}
