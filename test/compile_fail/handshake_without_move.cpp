// expect: the handshake consumes the queue pair: write
// expect: std::move(queue_pair).handshake(remote_endpoint)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

auto connect(verbspp::prepared_queue_pair<verbspp::transport::rc> queue_pair,
             const verbspp::endpoint& remote) {
#ifdef MUST_FAIL
  return queue_pair.handshake(remote);
#else
  return std::move(queue_pair).handshake(remote);
#endif
}
