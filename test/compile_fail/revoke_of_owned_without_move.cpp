// expect: revoke
// expect: std::move(lease).revoke()
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

#include <utility>

using namespace verbspp;
using leased_buffer = registered_buffer<access::local_write | access::window_bind>;

auto end(lease<access::remote_write, leased_buffer> lease) {
#ifdef MUST_FAIL
  return lease.revoke();
#else
  return std::move(lease).revoke();
#endif
}
