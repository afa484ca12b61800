// SPDX-License-Identifier: Apache-2.0

// Results and requests that are ignored, and results that are used as if they were their values, or
// declared for a reference.

#include <verbspp/base/result.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <span>

using namespace verbspp;

// case: discarded_pending
// expect-gcc: ignoring returned value of type
// expect-clang: ignoring return value
// flags: -Werror=unused-result -Werror=unused-value
void write(channel& channel, const write_operation& operation) {
  channel.post_write(operation).value() GOOD(.wait().value());
}

// case: discarded_result
// expect: ignoring return value
// flags: -Werror=unused-result
void receive(prepared_queue_pair<transport::rc>& queue_pair) {
#ifdef MUST_FAIL
  queue_pair.post_receive({});
#else
  if (const auto posted = queue_pair.post_receive({}); posted.has_error()) posted.value();
#endif
}

// case: loop_over_result
// expect: this is a result, which may hold an error: iterate over its value, as in for (... :
// expect: q.poll(slots).value())
// within: 15
void poll(const completion_queue& queue, std::span<work_completion> slots) {
  for (const auto& work : queue.poll(slots) GOOD(.value())) (void)work;
}

// case: result_of_reference
// expect: a result cannot hold a reference: return a pointer, or the value itself
using value = int BAD(&) GOOD(*);
int number = 1;

bool holds() {
  const result<value> held(std::in_place, GOOD(&) number);
  return held.has_value();
}
