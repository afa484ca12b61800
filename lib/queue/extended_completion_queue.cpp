// SPDX-License-Identifier: Apache-2.0
#include <verbspp/queue/extended_completion_queue.hpp>

namespace verbspp::detail {

error nested_polling() noexcept {
  ++free_polling_sessions;
  return {
      error_kind::busy, "ibv_start_poll",
      "this thread is polling an extended completion queue already: sessions don't nest, so take "
      "nothing from one within the function that poll_each calls"};
}

namespace {

error poll_failure(int returned, const char* operation) noexcept {
  return error::from_errno(errno_of(returned), operation)
      .as(error_kind::driver,
          "the completion queue is broken, usually because it overran: give it room for all work "
          "that can be outstanding on its queue pairs");
}

}  // namespace

error start_poll_failure(int returned) noexcept { return poll_failure(returned, "ibv_start_poll"); }

error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept {
  const error failure = poll_failure(returned, "ibv_next_poll");  // as long as errno is its own
  ibv_end_poll(queue);
  free_polling_sessions = 1;
  return failure;
}

}  // namespace verbspp::detail
