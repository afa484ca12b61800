// expect-gcc: designator order for field 'verbspp::send_operation::elements' does not match
// expect-gcc: declaration order
// expect-clang: requires field designators to be specified in declaration order
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, gather_element part) {
#ifdef MUST_FAIL
  return queue_pair.post_send({.immediate = immediate_data(7), .elements = part});
#else
  return queue_pair.post_send({.elements = part, .immediate = immediate_data(7)});
#endif
}
