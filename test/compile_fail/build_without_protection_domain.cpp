// expect: the protection domain is missing: call .protection_domain(pd)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto build(const verbspp::protection_domain& pd, const verbspp::completion_queue& cq) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
#ifndef MUST_FAIL
      .protection_domain(pd)
#endif
      .send_completion_queue(cq)
      .receive_completion_queue(cq)
      .access(verbspp::access::local_write)
      .build();
}
