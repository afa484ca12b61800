// expect: this queue pair takes its receives from a shared receive queue: post them
// expect: there
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::rc, receive_queue_kind::shared>;
#else
using queue_pair_type = connected_queue_pair<transport::rc>;
#endif

auto post(queue_pair_type& queue_pair, const receive_operation& request) {
  return queue_pair.post_receive(request);
}
