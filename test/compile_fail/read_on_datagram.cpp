// expect: UD carries nothing but sends: an RDMA read needs RC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::ud>;
#else
using queue_pair_type = connected_queue_pair<transport::rc>;
#endif

auto post(queue_pair_type& queue_pair, const read_operation& request) {
  return queue_pair.post_read(request);
}
