// expect: this queue pair is not connected: nothing can be sent before
// expect: std::move(queue_pair).handshake(remote_endpoint) (on UD: .activate()) has returned a
// expect: connected one
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_pair_type = prepared_queue_pair<transport::rc>;
#else
using queue_pair_type = connected_queue_pair<transport::rc>;
#endif

auto post(queue_pair_type& queue_pair, memory_window<memory_window_type::type_2>& window,
          const window_part<access::remote_write>& part) {
  return queue_pair.post_bind(window, part, {.id = 1});
}
