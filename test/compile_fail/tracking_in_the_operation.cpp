// expect: in this order, and then how that is tracked: {.id, .signaled}
// within: 15
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, gather_element part) {
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = part, .id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = part, .signaled = false});
#else
  return queue_pair.post_send({.elements = part}, {.id = 1, .signaled = false});
#endif
}
