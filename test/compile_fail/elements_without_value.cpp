// expect: this is a result, which may hold an error: take the value out of it, by .value() or
// VERBSPP_TRY within: 15 variants: 4 SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;
using region = memory_region<access::local_write | access::all_remote>;

auto post(queue_pair_type& queue_pair, const region& memory,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = memory.gather()}, {.id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_write({.elements = memory.gather(), .remote = there}, {.id = 1});
#elif MUST_FAIL == 3
  return queue_pair.post_receive({.elements = memory.scatter(0, 8)}, {.id = 1});
#elif MUST_FAIL == 4
  (void)there;
  return send_operation{.elements = memory.gather()};
#else
  return queue_pair.post_write({.elements = memory.gather().value(), .remote = there}, {.id = 1});
#endif
}
