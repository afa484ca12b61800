// SPDX-License-Identifier: Apache-2.0
/// \file
/// Looking for arrivals: polls of the hub's completion queue, and of the list of ready rows.
#include "hub/hub_state.hpp"
#include "wait/waiting.hpp"
#include <verbspp/base/detail/single_threaded.hpp>

#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <memory>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

/// The minimum time from ERR to the destruction of a queue pair that uses shared receives. If the
/// queue pair stopped in the middle of a message, the device completes the shared receive of that
/// message soon after (rxe does so in the background), unless the queue pair is destroyed before
/// that. The library cannot detect whether there is such a receive.
constexpr auto time_for_shared_receive = std::chrono::milliseconds(1);

}  // namespace

int hub_state::look() noexcept {
  if (!lock_.try_lock()) {
    if (!waiting_.sleeps()) return 0;
    // A thread that is about to sleep must do the polling itself. The thread that has the lock may
    // have polled before the last completion arrived, and that completion wakes only threads that
    // had requested an event before.
    lock_.lock();
  }
  take_all_completions();
  receives_.refill();
  const int lost = lost_;
  lock_.unlock();
  return lost;
}

void hub_state::take_all(std::chrono::steady_clock::time_point stopped_at) noexcept {
  const wait_limit until = stopped_at + time_for_shared_receive;
  for (;;) {
    {
      const brief_guard guard(lock_);
      take_all_completions();
    }
    if (!receives_.is_open() || until.has_passed()) return;
    sched_yield();
  }
}

bool hub_state::is_for_slot(const ibv_wc& completion, const hub_row& row) noexcept {
  return is_message(completion) && is_shared_receive(completion.wr_id) && !row.is_kept() &&
         !row.has_inbox();
}

void hub_state::fill(arrival& slot, const ibv_wc& completion, const hub_row& row) noexcept {
  pool_place& place = place_of_shared_receive(completion.wr_id);
  const channel_id source = row.id;
  assert(place.has_user(&receives_));
  place.fill(completion, source);
  slot.source = source;
  std::construct_at(&slot.message, &place, completion.byte_len);
}

void hub_state::hand_out_shared(const ibv_wc& completion, hub_row& row) noexcept {
  pool_place& place = place_of_shared_receive(completion.wr_id);
  assert(place.has_user(&receives_));
  receives_.note_ended(1);
  if (number_of(completion.status) != IBV_WC_SUCCESS || row.member == nullptr) [[unlikely]]
    return fail_shared(completion, place, row);
  place.fill(completion, row.id);
  list(place, row);
}

/// Tells the tools that watch memory which receives have ended.
void hub_state::end_watch(const ibv_wc* completions, int count) noexcept {
  for (int i = 0; i < count; ++i)
    if (const std::uint64_t request = completions[i].wr_id; is_shared_receive(request))
      place_of_shared_receive(request).end_receive();
}

/// Appends a message to the list of its channel.
void hub_state::list(pool_place& place, hub_row& row) noexcept {
  row.messages.append(place);
  if (row.has_inbox()) return rows_.note_news(row);
  rows_.note_ready(row);
}

/// Handles a shared receive that has failed, or whose channel no longer exists. Only the first
/// failure is passed to the channel.
void hub_state::fail_shared(const ibv_wc& completion, pool_place& place, hub_row& row) noexcept {
  place.give_back_unfilled();
  if (row.member == nullptr || std::exchange(row.member->knows_failure_, true)) return;
  row.member->put(completion);
  rows_.note_news(row);
}

template <bool HasSlots>
void hub_state::hand_out(const ibv_wc* completions, int count, empty_slots& into) noexcept {
  if (is_watched_) [[unlikely]]
    end_watch(completions, count);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[i];
    hub_row& row = rows_.find(completion.qp_num);
    if (HasSlots && into.left != 0 && is_for_slot(completion, row) && row.messages.is_empty()) {
      receives_.note_ended(1);
      into.next->message = {};
      fill(*into.next++, completion, row);
      --into.left;
    } else if (is_shared_receive(completion.wr_id)) {
      hand_out_shared(completion, row);
    } else if (row.member != nullptr) {  // the number of a destroyed queue pair leads to no channel
      row.member->put(completion);
      rows_.note_news(row);
    }
  }
  if (count < 0) [[unlikely]]
    lose_queue(count);
}

hub_state::empty_slots hub_state::hand_out_to(empty_slots into, const ibv_wc* completions,
                                              int count) noexcept {
  hand_out<true>(completions, count, into);
  return into;
}

hub_state::empty_slots hub_state::take_completions(empty_slots into) noexcept {
  ibv_wc completions[at_once];
  for (;;) {
    if (lost_ != 0) [[unlikely]]
      return into;
    const int room = room_for(into.left);
    const int filled = ibv_poll_cq(queue_.native_handle(), room, completions);
    into = hand_out_to(into, completions, filled);
    if (filled != room || into.left == 0) return into;
  }
}

void hub_state::take_all_completions() noexcept {
  ibv_wc completions[at_once];
  empty_slots none;
  constexpr int room = at_once;
  for (int filled = room; filled == room && lost_ == 0;) {
    filled = ibv_poll_cq(queue_.native_handle(), room, completions);
    hand_out<false>(completions, filled, none);
  }
}

/// Records that polling has failed, and notifies each channel.
void hub_state::lose_queue(int returned) noexcept {
  __atomic_store_n(&lost_, returned, __ATOMIC_RELAXED);
  rows_.add_care(hub_rows::care_always);
  receives_.stop();
  rows_.for_each([this](hub_row& row) { rows_.note_news(row); });
}

hub_state::empty_slots hub_state::take_listed(empty_slots into) noexcept {
  while (rows_.has_ready() && into.left != 0) {
    hub_row& first = rows_.take_ready();
    // After the channel was listed, it may have been destroyed or held, or a thread may have begun
    // the channel's turn.
    if (first.member == nullptr || first.is_kept()) continue;
    if (std::exchange(first.has_news, false)) into.fill(first.id, {});
    if (first.messages.is_empty() || first.has_inbox()) continue;
    while (into.left != 0 && !first.messages.is_empty())
      into.fill(first.id, take_first(first.messages));
    // A channel with more arrivals is listed again, behind the others.
    if (!first.messages.is_empty()) rows_.note_ready(first);
  }
  return into;
}

bool hub_state::take_usual(empty_slots& into, ibv_wc* completions, polled& now) noexcept {
  now.next = completions;
  if (rows_.needs_care() || into.left > at_once) [[unlikely]]
    return false;
  now.filled = ibv_poll_cq(queue_.native_handle(), static_cast<int>(into.left), completions);
  now.left = now.filled;
  if (now.filled > 0) [[likely]]
    do {
      const hub_row* const row = rows_.find_reported(now.next->qp_num);
      if (row == nullptr || !is_message(*now.next) || into.next->message) [[unlikely]]
        return false;
      // All channels of a hub with a pool receive into the pool. A channel whose list contains
      // messages, and whose messages are to be reported, is ready.
      assert(is_shared_receive(now.next->wr_id) && row->messages.is_empty());
      fill(*into.next++, *now.next++, *row);
    } while (--now.left != 0);
  return now.left == 0;
}

std::size_t hub_state::take_more(empty_slots into, const ibv_wc* next, int filled, int done,
                                 bool others_wait) noexcept {
  receives_.note_ended(done);
  if (has_table()) return 0;
  if (!calls_.has_some()) rows_.end_care(hub_rows::care_for_calls);
  const std::size_t size = into.left;
  into.left -= static_cast<std::size_t>(done);
  if (rows_.has_ready()) into = take_listed(into);
  into = hand_out_to(into, next, filled - done);
  if (into.left != 0 && (filled == 0 || filled == room_for(size))) into = take_completions(into);
  // The event that should wake another thread may belong to a completion that this thread has
  // taken. So the remaining completions are listed now, and the caller wakes the other thread for
  // them.
  if (into.left == 0 && others_wait) take_all_completions();
  receives_.refill();
  if (rows_.has_ready()) into = take_listed(into);
  return size - into.left;
}

hub_state::found hub_state::found_none(cause& failed) const noexcept {
  if (lost_ != 0)
    failed = poll_failure(lost_);
  else
    failed = receives_.failure();
  return {.is_short = receives_.is_due(), .has_more = calls_.has_some()};
}

hub_state::found hub_state::look_for_arrivals(std::span<arrival> into, std::uint32_t own,
                                              cause& failed) noexcept {
  const brief_guard guard(lock_);
  ibv_wc completions[at_once];
  empty_slots slots{.next = into.data(), .left = into.size()};
  polled now;
  const bool others_wait = __atomic_load_n(&waiting_threads_, __ATOMIC_RELAXED) != own ||
                           __atomic_load_n(&loops_wait_, __ATOMIC_RELAXED);
  // The usual case is that the poll has found all completions, or filled all slots.
  if (take_usual(slots, completions, now) &&
      (now.filled != room_for(into.size()) || !others_wait)) {
    receives_.note_ended(now.filled);
    receives_.refill();
    if (now.filled == 0) return found_none(failed);
    return {.count = static_cast<std::size_t>(now.filled)};
  }
  const std::size_t count = take_more(slots, now.next, now.filled, now.done(), others_wait);
  if (count == 0) return found_none(failed);
  return {.count = count, .has_more = has_more()};
}

hub_state::found hub_state::look_for_turn(hub_turn& taken, cause& failed) noexcept {
  const brief_guard guard(lock_);
  take_all_completions();
  receives_.refill();
  while (rows_.has_ready()) {
    hub_row& first = rows_.take_ready();
    if (first.member == nullptr || first.is_kept() || !first.has_arrivals()) continue;
    taken = begin_turn(first);
    // While clients have arrivals all of the time, no wait processes events, such as alarms, so
    // every 32nd turn processes them.
    return {.count = 1, .has_more = has_more(), .is_event_due = ++turns_ % 32 == 0};
  }
  return found_none(failed);
}

hub_state::found hub_state::look_for_news(hub_member*& next, cause& failed) noexcept {
  const brief_guard guard(lock_);
  take_all_completions();
  receives_.refill();
  next = rows_.take_news();
  if (next != nullptr) return {.count = 1};
  return found_none(failed);
}

template <class Find>
result<hub_state::found> hub_state::poll_with(Find find, bool takes_events) noexcept {
  cause failed;
  found seen = find(failed);
  if (seen.count == 0 && !failed && takes_events &&
      __atomic_load_n(&is_watching_, __ATOMIC_RELAXED)) {
    take_events();
    seen = find(failed);
  }
  if (seen.count == 0 && !failed && has_new_failure()) [[unlikely]] {
    __atomic_store_n(&failures_told_, listener_.times_heard(), __ATOMIC_RELAXED);
    failed = failure_told_to(listener_);
  }
  if (failed) [[unlikely]]
    return *failed;
  if (seen.has_more) [[unlikely]]
    do_more();
  return seen;
}

result<std::span<arrival>> hub_state::poll(std::span<arrival> into) noexcept {
  VERBSPP_TRY(seen, poll_with([&](cause& failed) { return look_for_arrivals(into, 0, failed); }));
  return into.first(seen.count);
}

result<void> hub_state::poll_channels() noexcept {
  if (calls_.has_some()) calls_.run();
  hub_member* next = nullptr;
  // If there is an event loop, it has already read the events, in `request_notification`.
  const bool has_loop = __atomic_load_n(&has_loop_, __ATOMIC_ACQUIRE);
  VERBSPP_TRYV(poll_with([&](cause& failed) { return look_for_news(next, failed); }, !has_loop));
  // Visits at most as many channels as the hub has, because their continuations may cause news
  // again and again.
  for (std::uint32_t left = size(); next != nullptr;) {
    next->poll_found(*next);
    const brief_guard guard(lock_);
    next = --left != 0 ? rows_.take_news() : nullptr;
  }
  return success();
}

result<hub_turn> hub_turn::poll(const hub_reference& hub) noexcept {
  hub_turn taken;
  VERBSPP_TRY(seen, hub->poll_with([&](hub_state::cause& failed) {
    return hub->look_for_turn(taken, failed);
  }));
  if (seen.is_event_due) [[unlikely]]
    hub->look_at_events();
  return taken;
}

std::size_t hub_state::take(std::span<arrival> into) noexcept {
  // A process with one thread needs no lock, and no thread waits.
  if (!is_single_threaded()) [[unlikely]]
    return take_locked(into);
  ibv_wc completions[at_once];
  empty_slots slots{.next = into.data(), .left = into.size()};
  polled now;
  if (!take_usual(slots, completions, now)) [[unlikely]]
    return take_rest(slots, now.next, now.filled, now.done());
  receives_.note_ended(now.filled);
  receives_.refill();
  return static_cast<std::size_t>(now.filled);
}

std::size_t hub_state::take_locked(std::span<arrival> into) noexcept {
  cause ignored;
  const found seen = look_for_arrivals(into, 0, ignored);
  // If there are no arrivals, the caller will wait, and the wait makes the calls. But a call
  // without slots does not wait.
  if (seen.has_more && (seen.count != 0 || into.empty())) do_more();
  return seen.count;
}

std::size_t hub_state::take_rest(empty_slots into, const ibv_wc* next, int filled,
                                 int done) noexcept {
  const std::size_t count = take_more(into, next, filled, done, false);
  if (has_more() && (count != 0 || into.left == 0)) do_more();
  return count;
}

}  // namespace detail

// These functions of `channel_hub` are in this file, so that the functions above can be inlined in
// them.

namespace {

bool has_objection(const detail::hub_state* hub, std::span<arrival> into) noexcept {
  return hub == nullptr || into.empty() || hub->has_table();
}

/// Returns the error for a call that cannot return arrivals.
error objection(const detail::hub_state* hub, std::span<arrival> into) noexcept {
  constexpr const char* polling = "poll a hub";
  if (hub == nullptr) return {error_kind::invalid_input, polling, "this hub was moved from"};
  if (into.empty()) return detail::no_slots(polling);
  return {error_kind::invalid_input, polling,
          "the hub's channels belong to a table of clients (hub_clients) or to a service: poll or "
          "wait with the functions of that object instead"};
}

}  // namespace

result<std::span<arrival>> channel_hub::poll(std::span<arrival> into) const noexcept {
  if (has_objection(state_.get(), into)) [[unlikely]]
    return objection(state_.get(), into);
  return state_->poll(into);
}

std::size_t channel_hub::take(std::span<arrival> into) const noexcept {
  if (!state_) [[unlikely]]
    return 0;
  return state_->take(into);
}

result<std::size_t> channel_hub::wait_longer(std::span<arrival> into,
                                             call_limit limit) const noexcept {
  if (has_objection(state_.get(), into)) return objection(state_.get(), into);
  return state_->wait_longer(into, limit);
}

}  // namespace verbspp
