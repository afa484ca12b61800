// SPDX-License-Identifier: Apache-2.0
#include "channel/waiting.hpp"

#include "base/pause.hpp"
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

/// A clock, a token, a descriptor are looked at once in so many rounds of a loop that spins.
constexpr unsigned rounds_between_checks = 64;

/// How often a loop that spins asks the device for asynchronous events, which takes a system call.
constexpr auto time_between_events = std::chrono::milliseconds(10);

/// How long a sleep may be where something may come that wakes nobody.
constexpr auto longest_nap = std::chrono::milliseconds(1);

result<bool> look_at(const watched_descriptor& watched) noexcept {
  if (watched.number < 0) return false;
  pollfd entry = entry_of(watched);
  VERBSPP_TRYV(wait_readable(std::span(&entry, 1), (wait_limit::time_point::min)()));
  return ends_wait(entry, waiting_on_channel);
}

/// What has ended the wait; empty if nothing has.
result<std::optional<wait_end>> check(const wait_terms& terms) noexcept {
  if (terms.listener.has_heard()) return std::optional(wait_end::async_event);
  for (const watched_descriptor& each : {terms.descriptor, terms.another}) {
    VERBSPP_TRY(is_over, look_at(each));
    if (is_over) return std::optional(wait_end::file_descriptor);
  }
  if (terms.until.has_passed()) return std::optional(wait_end::limit);
  return std::optional<wait_end>();
}

/// The same after a sleep; empty if there may be something to see, which nobody has looked for.
result<std::optional<wait_end>> sleep(const wait_terms& terms, looking look) noexcept {
  completion_queue_state& queue = *completion_queue_access::state_of(terms.queue);
  VERBSPP_TRY(events, queue.ask_to_be_woken(notify_for::every_completion));
  // What came before that wakes nobody.
  const sight seen = look();
  if (seen == sight::enough) {
    queue.stay_awake();
    return std::optional(wait_end::completions);
  }
  const bool is_nap = seen == sight::nothing_yet;
  VERBSPP_TRY(end, queue.sleep(events, is_nap ? wait_limit(longest_nap) : terms.until,
                               {.descriptor = terms.descriptor,
                                .another = terms.another,
                                .listener = &terms.listener}));
  if (end == wait_end::completions || (is_nap && end == wait_end::limit))
    return std::optional<wait_end>();
  return std::optional(end);
}

}  // namespace

bool has_ended(const watched_descriptor& watched) noexcept {
  const result<bool> is_over = look_at(watched);
  return is_over.has_value() && is_over.assume_value();
}

result<wait_end> wait_looking(const wait_terms& terms, looking look) noexcept {
  const wait_limit spins_until(terms.mode.spins_for());
  wait_limit events_at(time_between_events);
  for (unsigned round = 0;; ++round) {
    if (look() == sight::enough) return wait_end::completions;
    if (round % rounds_between_checks != 0) {
      pause_processor();
      continue;
    }
    VERBSPP_TRY(ended, check(terms));
    const bool sleeps = !ended && terms.mode.sleeps() && spins_until.has_passed();
    if (sleeps) {
      VERBSPP_TRY(end, sleep(terms, look));
      ended = end;
    }
    // Of what has failed, completions may tell the consequences; this is the reason.
    if (ended == wait_end::completions || ended == wait_end::async_event) return *ended;
    // What came together with the limit, or just before the peer hung up, was still in time.
    if (ended) return look() == sight::enough ? wait_end::completions : *ended;
    if (sleeps) {
      // If there is not enough now, it sleeps again at once.
      round = rounds_between_checks - 1;
      continue;
    }
    if (events_at.has_passed()) {
      VERBSPP_TRYV(terms.listener.look());
      events_at = time_between_events;
    }
    // Whoever is to answer may need this processor.
    if (round != 0) sched_yield();
  }
}

std::optional<error> failure_told_to(async_listener& listener, const wait_limit& until) noexcept {
  // What reading fails with is a consequence as well.
  static_cast<void>(listener.look(until));
  const std::optional<async_event> event = listener.heard();
  if (!event) return std::nullopt;
  return error(error_kind::driver, to_string(event->type()), event->hint());
}

}  // namespace verbspp::detail
