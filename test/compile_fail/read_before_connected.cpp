// expect: this queue pair is not connected: nothing can be sent before
// expect: std::move(queue_pair).handshake(remote_endpoint)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

#ifdef MUST_FAIL
using queue_pair = verbspp::prepared_queue_pair<verbspp::transport::rc>;
#else
using queue_pair = verbspp::connected_queue_pair<verbspp::transport::rc>;
#endif

auto post(queue_pair& queue_pair, const verbspp::read_operation& request) {
  return queue_pair.post_read(request);
}
