// SPDX-License-Identifier: Apache-2.0
/// \file
/// Waits of a hub: by threads and by event loops, and the events, alarms and calls that end them.
#include "base/timer.hpp"
#include "hub/hub_state.hpp"
#include "queue/watched_descriptors.hpp"
#include "wait/waiting.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace verbspp::detail {

namespace {

/// The tag of the timer, which differs from the tags of all channels.
constexpr std::uint64_t of_timer = ~std::uint64_t{0};

/// The tag of the descriptor that a channel watches. It is not 0, the tag of the signal, since no
/// channel has generation 0.
std::uint64_t tag_of(channel_id id) noexcept {
  return std::uint64_t{id.generation} << 32 | id.index;
}
/// A bit in the tags of a channel's other descriptors, whose events do not end the connection.
constexpr std::uint64_t of_other = 1U << 31;
static_assert(hub_rows::most < of_other);

}  // namespace

void hub_state::watch(hub_member& member, const watched_descriptor& before,
                      const watched_descriptor& watched) noexcept {
  const brief_guard guard(lock_);
  events_.remove(before.number);
  __atomic_store_n(&member.is_hung_up_, false, __ATOMIC_RELAXED);
  if (watched.number < 0) return;
  static_cast<void>(events_.add(watched.number, events_of(watched), tag_of(member.id)));
  __atomic_store_n(&is_watching_, true, __ATOMIC_RELAXED);
}

bool hub_state::report_events_of(const hub_member& member, int descriptor) noexcept {
  const brief_guard guard(lock_);
  // The descriptor is watched in edge-triggered mode, because only the thread that has the
  // channel's turn reads it. Until that thread does so, other threads that wait on the hub must not
  // be woken repeatedly.
  if (descriptor < 0 ||
      events_.add(descriptor, EPOLLIN | EPOLLET, tag_of(member.id) | of_other) != 0)
    return false;
  __atomic_store_n(&is_watching_, true, __ATOMIC_RELAXED);
  return true;
}

void hub_state::set_alarm(hub_member& member, std::chrono::steady_clock::time_point at) noexcept {
  const brief_guard guard(lock_);
  const std::int64_t time = at.time_since_epoch().count();
  if (time >= member.alarm_) return;
  if (timer_ < 0) {
    const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0) return;
    if (events_.add(timer, EPOLLIN, of_timer) != 0) {
      ::close(timer);
      return;
    }
    timer_ = timer;
    __atomic_store_n(&is_watching_, true, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&member.alarm_, time, __ATOMIC_RELEASE);
  if (time >= next_alarm_) return;
  next_alarm_ = time;
  set_timer(timer_, at);
}

void hub_state::report(channel_id id) noexcept {
  {
    const brief_guard guard(lock_);
    hub_row& row = rows_[id.index];
    if (row.member == nullptr || row.id != id) return;
    rows_.note_news(row);
  }
  wake_waiting();
}

void hub_state::hand_over(continuation& call) noexcept {
  {
    // Because of the lock, no thread misses the call: a thread that held the lock earlier, and will
    // sleep because it found nothing, is already counted, so `wake_waiting` wakes it.
    const brief_guard guard(lock_);
    calls_.push(call);
    rows_.add_care(hub_rows::care_for_calls);
  }
  wake_waiting();
}

void hub_state::wake_waiting() noexcept {
  if (!waiting_.sleeps()) return;
  if (__atomic_load_n(&waiting_threads_, __ATOMIC_SEQ_CST) != 0) events_.wake();
  if (__atomic_load_n(&loops_wait_, __ATOMIC_RELAXED) &&
      __atomic_exchange_n(&loops_wait_, false, __ATOMIC_ACQ_REL))
    loop_.wake();
}

result<std::size_t> hub_state::wait_longer(std::span<arrival> into, call_limit limit) noexcept {
  const auto find = [&](cause& failed) { return look_for_arrivals(into, 1, failed); };
  VERBSPP_TRY(seen, wait_until(find, limit.begin(usual_limit)));
  if (seen.has_more) do_more();
  return seen.count;
}

result<hub_turn> hub_turn::wait(const hub_reference& hub, call_limit limit) noexcept {
  hub_turn taken;
  const auto find = [&](hub_state::cause& failed) { return hub->look_for_turn(taken, failed); };
  hub_state::cause ignored;
  hub_state::found seen = find(ignored);
  if (seen.count == 0) [[unlikely]] {
    VERBSPP_TRY(later, hub->wait_until(find, limit.begin(usual_limit)));
    seen = later;
  }
  if (seen.has_more) hub->do_more();
  if (seen.is_event_due) [[unlikely]]
    hub->look_at_events();
  return taken;
}

/// Waits until `find` has found something, or has failed, or the limit expires. An event may wake
/// only one thread although there are arrivals for several threads, so the caller wakes the others
/// after its wait.
template <class Find>
result<hub_state::found> hub_state::wait_until(Find find, const wait_limit& limit) noexcept {
  __atomic_fetch_add(&waiting_threads_, 1U, __ATOMIC_SEQ_CST);
  const result<found> seen = wait_counted(find, limit);
  __atomic_fetch_sub(&waiting_threads_, 1U, __ATOMIC_SEQ_CST);
  return seen;
}

template <class Find>
result<hub_state::found> hub_state::wait_counted(Find find, const wait_limit& limit) noexcept {
  found seen;
  cause failed;
  const auto look = [&] {
    seen = find(failed);
    if (seen.count != 0 || failed || seen.has_more) return condition::state::met;
    // No thread is woken when a place returns to the pool, so the sleep has to be short.
    return seen.is_short ? condition::state::unmet_so_far : condition::state::unmet;
  };
  for (;;) {
    const bool has_events = waiting_.sleeps() || __atomic_load_n(&is_watching_, __ATOMIC_RELAXED);
    const int descriptor = has_events ? events_.descriptor() : -1;
    VERBSPP_TRY(end, wait_looking(waiting_, queue_,
                                  {.descriptor = {.number = descriptor}, .listener = &listener_},
                                  limit, look));
    if (end == wait_end::file_descriptor) {
      take_events();
      continue;
    }
    if (end == wait_end::async_event || failed)
      if (const auto told = failure_told_to(listener_)) return *told;
    if (failed) return *failed;
    if (seen.count != 0) return seen;
    // The wait ended because other threads have handed over calls, because a port was down briefly,
    // or because the limit was reached.
    calls_.run();
    if (end == wait_end::limit || limit.has_passed())
      return limit.failure(
          waiting_on_hub,
          "the hub has no completion or message to report: check that the peers send, and that "
          "the hub's message pool, if it has one, has free places, or allow more time");
  }
}

void hub_state::take_events() noexcept {
  const brief_guard guard(lock_);
  events_.take([this](std::uint64_t tag, std::uint32_t /*events*/) {
    if (tag == of_timer) return ring_alarms();
    hub_row& row = rows_[static_cast<std::uint32_t>(tag & ~of_other)];
    if (row.member == nullptr || tag_of(row.id) != (tag & ~of_other)) return;
    if ((tag & of_other) == 0) __atomic_store_n(&row.member->is_hung_up_, true, __ATOMIC_RELAXED);
    rows_.note_news(row);
  });
}

/// Reports the channels whose alarm times have passed. The caller holds the lock.
void hub_state::ring_alarms() noexcept {
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  next_alarm_ = hub_member::no_alarm;
  rows_.for_each([&](hub_row& row) {
    hub_member& member = *row.member;
    if (member.alarm_ <= now) {
      __atomic_store_n(&member.alarm_, hub_member::no_alarm, __ATOMIC_RELEASE);
      rows_.note_news(row);
    }
    next_alarm_ = std::min(next_alarm_, member.alarm_);
  });
  set_timer(timer_, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_alarm_)));
}

result<void> hub_state::open_loop() noexcept {
  if (!waiting_.sleeps())
    return error(error_kind::not_supported, waiting_on_hub,
                 "this hub only spins, and has no descriptor: choose wait_mode::sleep() for the "
                 "hub, or for the service or group to which it belongs");
  const brief_guard guard(lock_);
  if (has_loop_) return success();
  VERBSPP_TRYV(loop_.open(queue_, listener_));
  VERBSPP_TRYV(loop_.add_own(events_.descriptor(), EPOLLIN));
  completion_queue_access::state_of(queue_)->channel->wake_loops_by(loop_.signal());
  __atomic_store_n(&has_loop_, true, __ATOMIC_RELEASE);
  return success();
}

int hub_state::loop_descriptor() noexcept {
  return open_loop().has_value() ? loop_.descriptor() : -1;
}

/// Several event loops may share the hub. They share one descriptor, so one loop reads the events
/// for all of them. It then looks for arrivals, and its poll wakes the other loops if arrivals are
/// left. A thread in a blocking wait may also read an event that the loops need, so it wakes the
/// loops (`wake_loops_by`).
result<bool> hub_state::request_notification() noexcept {
  VERBSPP_TRYV(open_loop());
  VERBSPP_TRY(has_events, loop_.take(queue_));
  if (has_events) take_events();
  __atomic_store_n(&loops_wait_, true, __ATOMIC_RELEASE);
  VERBSPP_TRYV(completion_queue_access::state_of(queue_)->stay_wakeable());
  const brief_guard guard(lock_);
  take_all_completions();
  receives_.refill();
  return has_more() || has_new_failure() || lost_ != 0 || receives_.failure().has_value();
}

wait_limit::time_point hub_state::deadline() noexcept {
  const brief_guard guard(lock_);
  if (!receives_.is_due()) return (wait_limit::time_point::max)();
  return std::chrono::steady_clock::now() + longest_nap;
}

}  // namespace verbspp::detail
