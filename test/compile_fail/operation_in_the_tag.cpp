// expect: post_send takes {.elements, .immediate, .solicited, .fenced}, in this order, and then how
// that is tracked: {.id, .signaled} within: 15 SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, gather_element part) {
#ifdef MUST_FAIL
  return queue_pair.post_send({}, {.elements = part});
#else
  return queue_pair.post_send({.elements = part}, {});
#endif
}
