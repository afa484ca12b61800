// expect: a UD queue pair is connected to nobody: handshake, path and access flags are for RC and
// expect: UC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::ud;
#else
constexpr transport type = transport::uc;
#endif

auto connect(prepared_queue_pair<type> queue_pair, const endpoint& remote) {
  return std::move(queue_pair).handshake(remote);
}
