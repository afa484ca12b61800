// expect: only UD sends datagrams: the queue key, activate() and multicast groups do not exist on
// expect: RC and UC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::ud;
#endif

auto join(connected_queue_pair<type>& queue_pair, const gid& group) {
  return queue_pair.join_multicast(group);
}
