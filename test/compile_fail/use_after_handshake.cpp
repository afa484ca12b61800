// expect: while it is in the 'consumed' state
// expect: post_receive
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

// Only clang sees it. clang-tidy finds the same with bugprone-use-after-move for any compiler.

#include <verbspp/qp/queue_pair.hpp>

verbspp::result<void> connect(verbspp::prepared_queue_pair<verbspp::transport::rc> queue_pair,
                              const verbspp::endpoint& remote) {
#ifndef MUST_FAIL
  VERBSPP_TRYV(queue_pair.post_receive({}));
#endif
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
#ifdef MUST_FAIL
  VERBSPP_TRYV(queue_pair.post_receive({}));
#endif
  return connected.post_send({});
}
