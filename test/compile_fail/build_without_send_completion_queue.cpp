// expect: the send completion queue is missing: call .send_completion_queue(cq)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto build(const verbspp::protection_domain& pd, const verbspp::completion_queue& cq) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
      .protection_domain(pd)
#ifndef MUST_FAIL
      .send_completion_queue(cq)
#endif
      .receive_completion_queue(cq)
      .access(verbspp::access::local_write)
      .build();
}
