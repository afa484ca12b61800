// SPDX-License-Identifier: Apache-2.0
#include "queue/completion_channel_state.hpp"
#include "queue/poll_failure.hpp"
#include <verbspp/queue/completion_queue_with.hpp>

#include <cerrno>
#include <chrono>

namespace verbspp::detail {

error nested_polling() noexcept {
  ++free_polling_sessions;
  return {error_kind::busy, "ibv_start_poll", sessions_dont_nest};
}

error start_poll_failure(int returned) noexcept {
  return poll_failure(errno_of(returned), "ibv_start_poll");
}

error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept {
  // The error is created first, while errno still has the call's value.
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

result<std::uint64_t> completion_queue_state::stay_wakeable() noexcept {
  return channel->settle_asking(*this);
}

void completion_queue_state::stay_awake() noexcept { channel->collect(); }

result<wait_end> completion_queue_state::sleep(std::uint64_t events_so_far, const wait_limit& until,
                                               const also_watched& also) noexcept {
  return channel->sleep(*this, events_so_far, until, also);
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

namespace {

/// Implements `wait_watching`, which may replace the error that this function returns with an event
/// that explains the error.
result<watched_completions> wait_listening(const completion_queue& queue,
                                           completion_queue_state& state,
                                           std::span<work_completion> slots,
                                           const wait_limit& until, notify_for which,
                                           const also_watched& also) noexcept {
  const auto found = [](std::span<const work_completion> there) {
    return watched_completions{.ended_by = wait_end::completions, .completions = there};
  };
  for (wait_end ended_by = wait_end::completions;;) {
    VERBSPP_TRY(there, queue.poll(slots));
    if (!there.empty()) return found(there);
    if (auto event = also.listener->heard())
      return watched_completions{.ended_by = wait_end::async_event, .event = event};
    if (ended_by != wait_end::completions) return watched_completions{.ended_by = ended_by};
    VERBSPP_TRY(events, state.ask_to_be_woken(which));
    VERBSPP_TRY(meanwhile, queue.poll(slots));
    if (!meanwhile.empty()) {
      state.stay_awake();
      return found(meanwhile);
    }
    VERBSPP_TRY(end, state.sleep(events, until, also));
    ended_by = end;
  }
}

}  // namespace

result<watched_completions> wait_watching(const completion_queue& queue,
                                          completion_queue_state* state,
                                          std::span<work_completion> slots, const wait_limit& until,
                                          int file_descriptor, notify_for which) noexcept {
  constexpr const char* operation = "wait for completions";
  if (slots.empty()) return no_slots(operation);
  if (state == nullptr) return moved_from_queue(operation);
  const result<watched_completions> outcome =
      wait_listening(queue, *state, slots, until, which,
                     {.descriptor = {.number = file_descriptor}, .listener = &state->failures});
  if (outcome.has_value()) return outcome;
  // The best explanation of why a queue can no longer be used is the device's event about that
  // queue, which may be reported only a moment later.
  if (outcome.assume_error() != error_kind::driver) return outcome;
  static_cast<void>(state->failures.look(std::chrono::milliseconds(50)));
  if (auto event = state->failures.heard())
    return watched_completions{.ended_by = wait_end::async_event, .event = event};
  return outcome;
}

}  // namespace verbspp::detail

const char* verbspp::to_string(wait_end end) noexcept {
  switch (end) {
    case wait_end::completions:
      return "completions";
    case wait_end::file_descriptor:
      return "file descriptor";
    case wait_end::async_event:
      return "asynchronous event";
    case wait_end::limit:
      return "limit";
  }
  return "unknown end of a wait";
}
