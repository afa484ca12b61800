// SPDX-License-Identifier: Apache-2.0
#include "queue/completion_channel_state.hpp"
#include "queue/poll_failure.hpp"
#include <verbspp/queue/completion_queue_with.hpp>

#include <cerrno>

namespace verbspp::detail {

error nested_polling() noexcept {
  ++free_polling_sessions;
  return {error_kind::busy, "ibv_start_poll", sessions_dont_nest};
}

error start_poll_failure(int returned) noexcept {
  return poll_failure(errno_of(returned), "ibv_start_poll");
}

error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept {
  // As long as errno is its own.
  const error failure = poll_failure(errno_of(returned), "ibv_next_poll");
  ibv_end_poll(queue);
  free_polling_sessions = 1;
  return failure;
}

result<void> request_notification(ibv_cq* queue, notify_for which) noexcept {
  constexpr const char* operation = "ibv_req_notify_cq";
  if (queue == nullptr) return moved_from_queue(operation);
  const int errnum = errno_of(ibv_req_notify_cq(queue, which == notify_for::solicited_only));
  if (errnum != 0) return error::from_errno(errnum, operation);
  return success();
}

result<std::uint64_t> completion_queue_state::ask_to_be_woken(notify_for which) noexcept {
  const std::uint64_t events_so_far = channel->settle(*this);
  VERBSPP_TRYV(request_notification(native, which));
  return events_so_far;
}

void completion_queue_state::stay_awake() noexcept { channel->collect(); }

result<void> completion_queue_state::sleep(std::uint64_t events_so_far,
                                           const wait_limit& until) noexcept {
  VERBSPP_TRYV(channel->sleep(*this, events_so_far, until));
  return success();
}

result<std::span<const work_completion>> wait_for_completions(const completion_queue& queue,
                                                              completion_queue_state* state,
                                                              std::span<work_completion> slots,
                                                              const wait_limit& until,
                                                              notify_for which) noexcept {
  constexpr const char* operation = "wait for completions";
  if (slots.empty()) return no_slots(operation);
  if (state == nullptr) return moved_from_queue(operation);
  for (;;) {
    VERBSPP_TRY(there, queue.poll(slots));
    if (!there.empty() || until.has_passed()) return there;
    VERBSPP_TRY(events, state->ask_to_be_woken(which));
    VERBSPP_TRY(meanwhile, queue.poll(slots));
    if (!meanwhile.empty()) {
      state->stay_awake();
      return meanwhile;
    }
    VERBSPP_TRYV(state->sleep(events, until));
  }
}

}  // namespace verbspp::detail
