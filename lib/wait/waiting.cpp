// SPDX-License-Identifier: Apache-2.0
#include "wait/waiting.hpp"

#include "base/readable.hpp"
#include "queue/watched_descriptors.hpp"
#include <verbspp/queue/completion_queue_with.hpp>

#include <poll.h>
#include <sched.h>

#include <chrono>
#include <optional>
#include <span>

namespace verbspp::detail {

namespace {

/// The number of rounds after which a spinning loop checks the clock, the stop token and the
/// descriptors.
constexpr unsigned rounds_between_checks = 64;

/// The interval at which a spinning loop polls for asynchronous events, which takes a system call.
constexpr auto time_between_events = std::chrono::milliseconds(10);

result<bool> look_at(const watched_descriptor& watched) noexcept {
  if (watched.number < 0) return false;
  pollfd entry = entry_of(watched);
  VERBSPP_TRYV(wait_readable(std::span(&entry, 1), (wait_limit::time_point::min)()));
  return ends_wait(entry, waiting_on_channel);
}

/// Checks for events that end the wait, other than completions. \returns the event; empty if there
/// is none
result<std::optional<wait_end>> check(const also_watched& also, const wait_limit& until) noexcept {
  if (also.listener->has_heard()) return std::optional(wait_end::async_event);
  for (const watched_descriptor& each : {also.descriptor, also.another}) {
    VERBSPP_TRY(is_over, look_at(each));
    if (is_over) return std::optional(wait_end::file_descriptor);
  }
  if (until.has_passed()) return std::optional(wait_end::limit);
  return std::optional<wait_end>();
}

/// Looks for completions once more, and then sleeps until a completion or another event arrives.
/// \returns the event that ended the wait; empty if the caller has to look for completions again
result<std::optional<wait_end>> sleep(const completion_queue& queue, const also_watched& also,
                                      const wait_limit& until, looking look) noexcept {
  completion_queue_state& state = *completion_queue_access::state_of(queue);
  VERBSPP_TRY(events, state.stay_wakeable());
  // Completions that arrived before `stay_wakeable` was called wake no thread, so this function
  // looks for completions once more.
  const condition::state seen = look();
  if (seen == condition::state::met) return std::optional(wait_end::completions);
  const bool is_nap = seen == condition::state::unmet_so_far;
  const wait_limit latest =
      is_nap ? until.no_later_than(std::chrono::steady_clock::now() + longest_nap) : until;
  VERBSPP_TRY(end, state.sleep(events, latest, also));
  if (end == wait_end::completions || (is_nap && end == wait_end::limit))
    return std::optional<wait_end>();
  return std::optional(end);
}

/// Looks for completions for a short time after the watched socket was hung up. \returns
/// `completions` if enough of them have arrived, otherwise `file_descriptor`
wait_end look_on(const wait_limit& until, looking look) noexcept {
  const wait_limit soon = time_of_completions;
  for (;;) {
    if (look() == condition::state::met) return wait_end::completions;
    if (soon.has_passed() || until.has_passed()) return wait_end::file_descriptor;
    sched_yield();
  }
}

}  // namespace

bool has_ended(const watched_descriptor& watched) noexcept {
  const result<bool> is_over = look_at(watched);
  return is_over.has_value() && is_over.assume_value();
}

result<wait_end> wait_looking(wait_mode mode, const completion_queue& queue,
                              const also_watched& also, const wait_limit& until,
                              looking look) noexcept {
  const bool sleeps_at_once = mode.spins_for() <= std::chrono::nanoseconds::zero();
  const wait_limit spins_until(mode.spins_for());
  wait_limit events_at = wait_limit::forever();
  for (unsigned round = 0;; ++round) {
    std::optional<wait_end> ended;
    bool sleeps = sleeps_at_once && round == 0;
    if (!sleeps) {
      if (look() == condition::state::met) return wait_end::completions;
      if (round % rounds_between_checks != 0) continue;
      VERBSPP_TRY(seen, check(also, until));
      ended = seen;
      sleeps = !ended && mode.sleeps() && spins_until.has_passed();
    }
    if (sleeps) {
      VERBSPP_TRY(end, sleep(queue, also, until, look));
      ended = end;
    }
    if (ended) {
      // An asynchronous event is the cause of a failure, so it is returned even if there are
      // completions, which may only be consequences.
      if (*ended == wait_end::completions || *ended == wait_end::async_event) return *ended;
      if (*ended == wait_end::file_descriptor && also.descriptor.what == watch_for::hang_up &&
          has_ended(also.descriptor))
        return look_on(until, look);
      // Completions that arrived just before this event still count.
      return look() == condition::state::met ? wait_end::completions : *ended;
    }
    if (sleeps) {
      // If there are still not enough completions, the next round makes the checks, so the thread
      // immediately sleeps again.
      round = rounds_between_checks - 1;
      continue;
    }
    if (events_at.is_forever()) {
      events_at = time_between_events;
    } else if (events_at.has_passed()) {
      VERBSPP_TRYV(also.listener->look());
      events_at = time_between_events;
    }
    // The thread that will send the awaited response may need this processor.
    if (round != 0) sched_yield();
  }
}

std::optional<error> failure_told_to(async_listener& listener, const wait_limit& until) noexcept {
  // If the events cannot be read, that error is ignored, since it is only another consequence of
  // the failure.
  static_cast<void>(listener.look(until));
  const std::optional<async_event> event = listener.heard();
  if (!event) return std::nullopt;
  return error(error_kind::driver, to_string(event->type()), event->hint());
}

}  // namespace verbspp::detail
