// expect: a queue pair in RTR only receives: nothing can be sent before it is in RTS
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
using queue_pair_type = queue_pair<transport::rc, ready_to_receive>;
#else
using queue_pair_type = queue_pair<transport::rc, ready_to_send>;
#endif

auto post(queue_pair_type& queue_pair, const send_operation& request) {
  return queue_pair.post_send(request);
}
