// expect-gcc: /cannot convert .*traffic_class.* to .*hop_limit/
// expect-clang: /no viable conversion from .*traffic_class.* to .*hop_limit/
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto set(verbspp::traffic_class traffic, verbspp::hop_limit hops) {
#ifdef MUST_FAIL
  static_cast<void>(hops);
  return verbspp::build_queue_pair<verbspp::transport::rc>().hop_limit(traffic);
#else
  return verbspp::build_queue_pair<verbspp::transport::rc>().hop_limit(hops).traffic_class(traffic);
#endif
}
