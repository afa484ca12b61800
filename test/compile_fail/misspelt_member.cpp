// expect: {.elements, .immediate, .solicited, .fenced}, in this order
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, gather_element part) {
#ifdef MUST_FAIL
  return queue_pair.post_send({.elemnts = part}, {.id = 1});
#else
  return queue_pair.post_send({.elements = part}, {.id = 1});
#endif
}
