// expect: a gather element is for reading: the device needs one that it may write, from
// memory_region::scatter within: 15 variants: 3 SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, gather_element part, scatter_element result,
          const remote_memory<access::all_remote>& there, remote_word word) {
  (void)part, (void)result, (void)there, (void)word;
#if MUST_FAIL == 1
  return queue_pair.post_receive({.elements = part});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part, .remote = there});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part, .remote = word});
#else
  return queue_pair.post_fetch_and_add({.result = result, .remote = word});
#endif
}
