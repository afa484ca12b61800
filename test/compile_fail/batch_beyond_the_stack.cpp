// expect: the list of a batch is on the stack, and this one would take more than 256 KiB of it:
// post expect: several batches of fewer requests SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr std::size_t requests = 100000;
#else
constexpr std::size_t requests = 1024;
#endif

auto post(connected_queue_pair<transport::rc>& queue_pair, const send_operation& operation) {
  return queue_pair.post_batch<requests>([&](auto& batch) { batch.post_send(operation); });
}
