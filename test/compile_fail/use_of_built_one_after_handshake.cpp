// expect: while it is in the 'consumed' state
// expect: number
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

// A queue pair that VERBSPP_TRY took out of a result. Only clang sees it.
// clang-tidy finds the same with bugprone-use-after-move for any compiler.

#include <verbspp/qp/builder.hpp>

using prepared = verbspp::prepared_queue_pair<verbspp::transport::rc>;
verbspp::result<prepared> build();

verbspp::result<verbspp::queue_pair_number> connect(const verbspp::endpoint& remote) {
  VERBSPP_TRY(queue_pair, build());
#ifdef MUST_FAIL
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
  return queue_pair.number();
#else
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
  return connected.number();
#endif
}
