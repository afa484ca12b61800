// expect: these attributes are for a transition from another state than the one that this queue
// expect: pair is in
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr queue_pair_state from = send_queue_drained;
#else
constexpr queue_pair_state from = ready_to_send;
#endif

auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<transport::rc, from, from>());
}
