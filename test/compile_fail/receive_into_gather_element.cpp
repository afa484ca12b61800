// expect: a gather element is for reading: the device needs one that it may write, from
// expect: memory_region::scatter
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

#ifdef MUST_FAIL
using element = verbspp::gather_element;
#else
using element = verbspp::scatter_element;
#endif

auto receive(verbspp::connected_queue_pair<verbspp::transport::rc>& queue_pair, element part) {
  return queue_pair.post_receive({.elements = part}, {.id = 1});
}
