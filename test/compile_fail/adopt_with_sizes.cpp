// expect: a queue pair that was made elsewhere has the sizes that it was made with
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;

auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue)
#ifdef MUST_FAIL
      .max_send_work_requests(64)
#endif
      .from_native<queue_pair_state::init>(made, ownership::borrowed);
}
