// expect: this region is a temporary, which ends before the lease does: name
// expect: it, and keep it until the lease is over
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;
using leased_region = memory_region<access::local_write | access::window_bind>;

#ifdef MUST_FAIL
leased_region memory();
#else
const leased_region& memory();
#endif

void grant(channel& to) { static_cast<void>(to.lease<access::remote_write>(memory(), 0, 64)); }
