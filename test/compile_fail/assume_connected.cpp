// expect: a device moves a queue pair to no state but ERR and SQE by itself
// expect: assume_state_unchecked
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

auto assume(prepared_queue_pair<transport::rc> queue_pair) {
#ifdef MUST_FAIL
  return std::move(queue_pair).assume_state<queue_pair_state::ready_to_send>();
#else
  return std::move(queue_pair).assume_state<queue_pair_state::error>();
#endif
}
