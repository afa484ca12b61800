// expect: this completion queue is not polled field by field: create it as an
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/completion_queue_with.hpp>

#ifdef MUST_FAIL
using queue_type = verbspp::completion_queue;
#else
using queue_type = verbspp::extended_completion_queue<verbspp::completion_feature::timestamp>;
#endif

auto poll(const queue_type& queue) {
  return queue.poll_each([](const auto& /*completion*/) {});
}
