// expect: the queue key is missing: this transition requires .qkey(...)
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto complete() {
  const auto attributes = attributes_for<transport::ud, reset, init>().port(1).pkey_index(0);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.qkey(1);
#endif
}

auto to_init(queue_pair<transport::ud, reset> queue_pair) {
  return std::move(queue_pair).modify(complete());
}
