// expect: this attribute was given already: each attribute of a transition can be given once
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto attributes() {
  const auto attributes = attributes_for<transport::rc, init, ready_to_receive>();
#ifdef MUST_FAIL
  return attributes.path_mtu(1024).path_mtu(2048);
#else
  return attributes.path_mtu(2048);
#endif
}
