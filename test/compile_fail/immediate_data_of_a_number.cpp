// expect: a number is not immediate data by itself: write immediate_data(7)
// within: 15
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, unsigned number,
          const remote_memory<access::all_remote>& there) {
  (void)there;
#if MUST_FAIL == 1
  (void)number;
  return queue_pair.post_send({.immediate = 7});
#elif MUST_FAIL == 2
  return queue_pair.post_write({.remote = there, .immediate = number});
#else
  return queue_pair.post_send({.immediate = immediate_data(number)});
#endif
}
