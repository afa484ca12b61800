// expect: only a prepared queue pair (in INIT), as build() returns it, has a handshake
// expect: has a handshake
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

#ifdef MUST_FAIL
using queue_pair = verbspp::connected_queue_pair<verbspp::transport::rc>;
#else
using queue_pair = verbspp::prepared_queue_pair<verbspp::transport::rc>;
#endif

auto connect(queue_pair&& queue_pair, const verbspp::endpoint& remote) {
  return std::move(queue_pair).handshake(remote);
}
