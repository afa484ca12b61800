// expect: these attributes are for a queue pair of another transport
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::rc;
#endif

auto stay(prepared_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<type, init, init>());
}
