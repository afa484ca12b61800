// expect: while it is in the 'consumed' state
// expect: handshake
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

// A queue pair that value() took out of a result; what is assigned to it is a new one.
// Only clang sees it. clang-tidy finds the same with bugprone-use-after-move for any compiler.

#include <verbspp/qp/queue_pair.hpp>

verbspp::result<void> connect(
    verbspp::result<verbspp::prepared_queue_pair<verbspp::transport::rc>> built,
    const verbspp::endpoint& remote) {
  auto queue_pair = std::move(built).value();
  auto first = std::move(queue_pair).handshake(remote);
#ifdef MUST_FAIL
  auto second = std::move(queue_pair).handshake(remote);
#else
  queue_pair = std::move(built).value();
  auto second = std::move(queue_pair).handshake(remote);
#endif
  VERBSPP_TRYV(first.value().post_send({}));
  return second.value().post_send({});
}
