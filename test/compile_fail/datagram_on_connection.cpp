// expect: only UD sends datagrams
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::rc>;
#else
using queue_pair_type = connected_queue_pair<transport::ud>;
#endif

auto post(queue_pair_type& queue_pair, const datagram_operation& request) {
  return queue_pair.post_send(request);
}
