// expect: the receive completion queue is missing: call .receive_completion_queue(cq)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto build(const verbspp::protection_domain& pd, const verbspp::completion_queue& cq) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
      .protection_domain(pd)
      .send_completion_queue(cq)
#ifndef MUST_FAIL
      .receive_completion_queue(cq)
#endif
      .access(verbspp::access::local_write)
      .build();
}
