// expect: this is a result, which may hold an error: go through what it holds, as in
// expect: for (... : q.poll(slots).value())
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/completion_queue.hpp>

#include <span>

using namespace verbspp;

void poll(const completion_queue& queue, std::span<work_completion> slots) {
#ifdef MUST_FAIL
  for (const auto& work : queue.poll(slots)) (void)work;
#else
  for (const auto& work : queue.poll(slots).value()) (void)work;
#endif
}
