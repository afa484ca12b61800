// expect: an atomic operation works on one word of remote memory: write .remote =
// remote_word::at(memory, offset).value() within: 15 variants: 2 SPDX-License-Identifier:
// Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_fetch_and_add({.result = part, .remote = there});
#elif MUST_FAIL == 2
  return queue_pair.post_compare_and_swap({.result = part, .remote = there});
#else
  return queue_pair.post_fetch_and_add({.result = part, .remote = remote_word::at(there).value()});
#endif
}
