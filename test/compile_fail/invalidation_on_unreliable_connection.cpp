// expect: only RC carries invalidations of an rkey
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::uc>;
#else
using queue_pair_type = connected_queue_pair<transport::rc>;
#endif

auto post(queue_pair_type& queue_pair, const local_invalidate_operation& request) {
  return queue_pair.post_local_invalidate(request);
}
