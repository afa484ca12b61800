// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: ack_timeout
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto set() {
  using namespace std::chrono_literals;
  return verbspp::build_queue_pair<verbspp::transport::rc>()
      .ack_timeout(100ms)
#ifdef MUST_FAIL
      .ack_timeout(200ms)
#endif
      .hop_limit(1);
}
