// expect: UD carries nothing but sends, so nobody could access memory through a window: binding one
// expect: needs RC or UC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::ud>;
#else
using queue_pair_type = connected_queue_pair<transport::uc>;
#endif

auto post(queue_pair_type& queue_pair, memory_window<memory_window_type::type_1>& window,
          const window_part<access::remote_write>& part) {
  return queue_pair.post_bind(window, part, {.id = 1});
}
