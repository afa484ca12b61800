// expect: a UD queue pair has no peer of its own to send to: name the destination, as .to =
// expect: address_handle.destination(number, qkey)
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

auto post(connected_queue_pair<transport::ud>& queue_pair, const datagram_destination& to) {
#ifdef MUST_FAIL
  return queue_pair.post_send({}, {.id = 1});
#else
  return queue_pair.post_send({.to = to}, {.id = 1});
#endif
}
