// expect: this is a result, which may hold an error: take the value out of it, by .value() or
// VERBSPP_TRY within: 15 variants: 3 SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_write({.elements = part, .remote = there.slice(0, 8)}, {.id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part, .remote = there.slice(0, 8)}, {.id = 1});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part, .remote = remote_word::at(there)});
#else
  return queue_pair.post_read({.elements = part, .remote = there.slice(0, 8).value()}, {.id = 1});
#endif
}
