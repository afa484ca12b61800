// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: send_completion_queue
// SPDX-License-Identifier: Apache-2.0

// completion_queue() gives both directions; so one of them is given twice.

#include <verbspp/qp/builder.hpp>

auto set(const verbspp::completion_queue& cq, const verbspp::completion_queue& other) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
      .send_completion_queue(cq)
#ifdef MUST_FAIL
      .completion_queue(other);
#else
      .receive_completion_queue(other);
#endif
}
