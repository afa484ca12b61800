// SPDX-License-Identifier: Apache-2.0

// Batches of work requests.

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

// case: batch_beyond_the_stack
// expect: the list of a batch is stored on the stack, and this one would take more than 256 KiB:
// expect: post several smaller batches
constexpr std::size_t requests = BAD(100000) GOOD(1024);
auto post(connected_queue_pair<transport::rc>& queue_pair, const send_operation& operation) {
  return queue_pair.post_batch<requests>([&](auto& batch) { batch.post_send(operation); });
}

// case: batch_bind_of_type_1
// expect: a memory window of type 1 is bound by its own call of queue_pair::post_bind: only windows
// expect: of type 2 can be bound in a batch
constexpr auto type = BAD(memory_window_type::type_1) GOOD(memory_window_type::type_2);
auto post(connected_queue_pair<transport::rc>& queue_pair, memory_window<type>& window,
          const window_part<access::remote_read>& part) {
  return queue_pair.post_batch<1>(
      [&](auto& batch) { static_cast<void>(batch.post_bind(window, part, {.id = 1})); });
}
