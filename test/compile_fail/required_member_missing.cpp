// expect: /\.remote = |\.rkey = |\.result = /
// within: 15
// variants: 7
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there, remote_word word) {
  (void)part, (void)there, (void)word;
#if MUST_FAIL == 1
  return queue_pair.post_write({.elements = part});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part});
#elif MUST_FAIL == 4
  return queue_pair.post_compare_and_swap({.remote = word});
#elif MUST_FAIL == 5
  return queue_pair.post_local_invalidate({});
#elif MUST_FAIL == 6
  return queue_pair.post_send_with_invalidate({.elements = part});
#elif MUST_FAIL == 7
  return write_operation{.elements = part};
#else
  return queue_pair.post_write({.elements = part, .remote = there});
#endif
}
