// expect: so far only transport::rc (reliable connection) can be built
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto start() {
#ifdef MUST_FAIL
  return verbspp::build_queue_pair<verbspp::transport::ud>();
#else
  return verbspp::build_queue_pair<verbspp::transport::rc>();
#endif
}
