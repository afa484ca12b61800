// expect: the handshake consumes the prepared channel: write
// expect: std::move(prepared).handshake(remote_endpoint)
// within: 7
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

auto connect(verbspp::prepared_channel prepared, const verbspp::endpoint& remote) {
#ifdef MUST_FAIL
  return prepared.handshake(remote);
#else
  return std::move(prepared).handshake(remote);
#endif
}
