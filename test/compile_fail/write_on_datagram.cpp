// expect: UD carries nothing but sends: an RDMA write needs RC or UC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::ud>;
#else
using queue_pair_type = connected_queue_pair<transport::uc>;
#endif

auto post(queue_pair_type& queue_pair, const write_operation& request) {
  return queue_pair.post_write(request);
}
