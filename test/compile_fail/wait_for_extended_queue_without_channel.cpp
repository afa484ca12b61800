// expect: this completion queue reports to no channel, so nobody can wait for it
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/completion_queue_with.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
using queue_type = extended_completion_queue<completion_feature::timestamp>;
#else
using queue_type =
    completion_queue_with<completion_feature::waitable | completion_feature::timestamp>;
#endif

auto wait(const queue_type& queue) {
  return queue.wait_each([](const auto& /*completion*/) {}, std::chrono::milliseconds(100));
}
