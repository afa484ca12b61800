// expect: while it is in the 'consumed' state
// expect: post_receive
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

// Only clang sees it. clang-tidy finds the same with bugprone-use-after-move for any compiler.

#include <verbspp/qp/queue_pair.hpp>

using queue_pair = verbspp::prepared_queue_pair<verbspp::transport::rc>;
void keep(queue_pair kept);

auto receive(queue_pair queue_pair) {
#ifdef MUST_FAIL
  keep(std::move(queue_pair));
  return queue_pair.post_receive({});
#else
  auto posted = queue_pair.post_receive({});
  keep(std::move(queue_pair));
  return posted;
#endif
}
