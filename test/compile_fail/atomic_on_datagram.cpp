// expect: UD carries nothing but sends: atomic operations need RC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::ud>;
#else
using queue_pair_type = connected_queue_pair<transport::rc>;
#endif

auto post(queue_pair_type& queue_pair, const compare_and_swap_operation& request) {
  return queue_pair.post_compare_and_swap(request);
}
