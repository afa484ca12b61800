// expect: this completion queue reports to no channel, so nobody can wait for it
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/completion_channel.hpp>

#ifdef MUST_FAIL
using queue_type = verbspp::completion_queue;
#else
using queue_type = verbspp::waitable_completion_queue;
#endif

auto wait(const queue_type& queue, std::span<verbspp::work_completion> slots) {
  return queue.wait(slots, std::chrono::steady_clock::time_point::max());
}
