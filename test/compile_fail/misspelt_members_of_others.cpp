// expect: in this order, and then how that is tracked: {.id
// within: 15
// variants: 6
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
  const remote_word word = remote_word::at(there).value();
#if MUST_FAIL == 1
  return queue_pair.post_write({.element = part, .remote = word});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.element = part, .remote = word});
#elif MUST_FAIL == 3
  return queue_pair.post_compare_and_swap({.result = part, .remote = word, .expect = 1});
#elif MUST_FAIL == 4
  return queue_pair.post_fetch_and_add({.result = part, .remote = word, .add = 1});
#elif MUST_FAIL == 5
  (void)word;
  return queue_pair.post_send_with_invalidate({.element = part});
#elif MUST_FAIL == 6
  (void)word;
  return queue_pair.post_local_invalidate({.key = 1});
#else
  return queue_pair.post_fetch_and_add({.result = part, .remote = word, .addend = 1});
#endif
}
