// expect: this is a result, which may hold an error: take the value out of it, by .value() or
// VERBSPP_TRY within: 15 SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair,
          const memory_region<access::local_write | access::all_remote>& memory, remote_word word) {
#ifdef MUST_FAIL
  return queue_pair.post_fetch_and_add({.result = memory.scatter(0, 8), .remote = word});
#else
  return queue_pair.post_fetch_and_add({.result = memory.scatter(0, 8).value(), .remote = word});
#endif
}
