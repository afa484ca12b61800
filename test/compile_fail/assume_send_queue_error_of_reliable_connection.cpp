// expect: only a UC or UD queue pair moves to SQE, from RTS or SQD: every other failure leads to
// ERR SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

auto assume(connected_queue_pair<transport::rc> queue_pair) {
#ifdef MUST_FAIL
  return std::move(queue_pair).assume_state<queue_pair_state::send_queue_error>();
#else
  return std::move(queue_pair).assume_state<queue_pair_state::error>();
#endif
}
