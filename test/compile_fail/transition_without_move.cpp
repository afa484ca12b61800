// expect: a transition to another state consumes the queue pair: write
// expect: std::move(queue_pair).modify(attributes)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes = attributes_for<transport::rc, ready_to_send, send_queue_drained>();
#ifdef MUST_FAIL
  return queue_pair.modify(attributes);
#else
  return std::move(queue_pair).modify(attributes);
#endif
}
