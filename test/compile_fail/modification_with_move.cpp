// expect: this modification leaves the queue pair in its state and does not consume it: write
// expect: queue_pair.modify(attributes)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto forbid_all(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes =
      attributes_for<transport::rc, ready_to_send, ready_to_send>().access(access::local_read);
#ifdef MUST_FAIL
  return std::move(queue_pair).modify(attributes);
#else
  return queue_pair.modify(attributes);
#endif
}
