// expect: this queue pair takes its receives from a shared receive queue, whose size
// expect: is given at its creation
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;

auto build(const shared_receive_queue& queue) {
  const auto builder = build_queue_pair<transport::rc>().shared_receive_queue(queue);
#ifdef MUST_FAIL
  return builder.max_receive_work_requests(4);
#else
  return builder.max_send_work_requests(4);
#endif
}
