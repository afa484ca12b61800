// expect: the queue pair number of the peer is missing: this transition requires .destination(...)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto complete() {
  const auto attributes = attributes_for<transport::rc, init, ready_to_receive>()
                              .path(roce_path{})
                              .path_mtu(1024)
                              .receive_psn(0)
                              .max_reads_as_target(1)
                              .min_rnr_timer(12);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.destination(2);
#endif
}

auto to_ready_to_receive(prepared_queue_pair<transport::rc> queue_pair) {
  return std::move(queue_pair).modify(complete());
}
