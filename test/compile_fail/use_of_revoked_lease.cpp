// expect: while it is in the 'consumed' state
// expect: remote
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

auto use(lease<access::remote_write> lease) {
#ifdef MUST_FAIL
  static_cast<void>(lease.revoke());
#endif
  return lease.remote();
}
