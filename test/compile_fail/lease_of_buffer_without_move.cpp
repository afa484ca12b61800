// expect: a lease that owns its memory takes it over: write std::move(buffer)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

#include <utility>

using namespace verbspp;
using leased_buffer = registered_buffer<access::local_write | access::window_bind>;

auto grant(channel& to, leased_buffer buffer) {
#ifdef MUST_FAIL
  return to.lease<access::remote_write>(buffer);
#else
  return to.lease<access::remote_write>(std::move(buffer));
#endif
}
