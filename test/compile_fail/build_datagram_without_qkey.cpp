// expect: the queue key is missing: call .qkey(...) before .build()
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto build(const protection_domain& domain, const completion_queue& queue) {
  const auto builder =
      build_queue_pair<transport::ud>().protection_domain(domain).completion_queue(queue);
#ifdef MUST_FAIL
  return builder.build();
#else
  return builder.qkey(1).build();
#endif
}
