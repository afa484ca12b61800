// expect: the access flags are missing: call .access(access::...)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto build(const verbspp::protection_domain& pd, const verbspp::completion_queue& cq) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
      .protection_domain(pd)
      .send_completion_queue(cq)
      .receive_completion_queue(cq)
#ifndef MUST_FAIL
      .access(verbspp::access::local_write)
#endif
      .build();
}
