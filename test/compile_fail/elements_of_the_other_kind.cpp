// expect: this is a list of the other kind of elements: what is sent needs a gather_list, what is
// filled a scatter_list within: 15 variants: 2 SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, const gather_list& sent, const scatter_list& filled) {
  (void)sent, (void)filled;
#if MUST_FAIL == 1
  return queue_pair.post_receive({.elements = sent});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = filled});
#else
  return queue_pair.post_send({.elements = sent});
#endif
}
