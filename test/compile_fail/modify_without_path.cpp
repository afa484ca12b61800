// expect: the path to the peer is missing: this transition requires .path(...)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto complete() {
  const auto attributes = attributes_for<transport::uc, init, ready_to_receive>()
                              .path_mtu(1024)
                              .receive_psn(0)
                              .destination(2);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.path(infiniband_path{});
#endif
}

auto to_ready_to_receive(prepared_queue_pair<transport::uc> queue_pair) {
  return std::move(queue_pair).modify(complete());
}
