// expect: a memory window of type 1 is bound by a call of its own, post_bind: only those of type 2
// expect: can be bound in a batch
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr auto type = memory_window_type::type_1;
#else
constexpr auto type = memory_window_type::type_2;
#endif

auto post(connected_queue_pair<transport::rc>& queue_pair, memory_window<type>& window,
          const window_part<access::remote_read>& part) {
  return queue_pair.post_batch<1>(
      [&](auto& batch) { static_cast<void>(batch.post_bind(window, part, {.id = 1})); });
}
