// expect: the access flags are missing: a queue pair in RESET is still to be prepared
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;

auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue)
#ifndef MUST_FAIL
      .access(access::local_write)
#endif
      .from_native<queue_pair_state::reset>(made, ownership::borrowed);
}
