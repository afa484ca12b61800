// SPDX-License-Identifier: Apache-2.0
/// \file
/// The polls of a channel, in the order in which a poll takes its steps, and the calls that they
/// make: continuations, and calls that other threads hand over.
#include "core/channel_member.hpp"
#include "wait/waiting.hpp"
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/channel_polls.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>

namespace verbspp::detail {

namespace {

using clock = std::chrono::steady_clock;

/// The time of the next alarm. A default limit starts to run only at an alarm, so it may be
/// exceeded by the time between two alarms.
clock::time_point next_tick(std::chrono::nanoseconds usual_limit) noexcept {
  return wait_limit(usual_limit / 4 + std::chrono::nanoseconds(1)).deadline();
}

}  // namespace

// A poll: it collects completions, makes the calls that are due, and handles expired limits.

void channel_core::poll() noexcept {
  if (polls_.needs_care()) [[unlikely]]
    return poll_with_care();
  ibv_wc completions[completions_per_poll];
  int filled = 0;
  bool is_usual = false;
  {
    const one_thread only(users_);
    filled = connection_.poll(completions);
    is_usual = filled == 1 && complete_next(*completions);
  }
  if (!is_usual) [[unlikely]]
    return poll_rest(filled, std::end(completions));
  continuation* const due = polls_.take_sent(sends_.completed());
  if (due == nullptr || polls_.must_check_alarm()) [[unlikely]]
    return call_due(due, true);
  // Keeps the core alive, because a continuation may destroy the channel.
  ++callers_;
  due->call();
  if (polls_.may_have_due(sends_.completed())) [[unlikely]]
    return call_more();
  --callers_;
}

/// Continues a poll after any result of polling the completion queue. `end` is the end of the array
/// of completions: with its beginning, g++ would keep an address in a register during a poll.
void channel_core::poll_rest(int filled, const ibv_wc* end) noexcept {
  if (filled != 0) complete_all(end - completions_per_poll, filled);
  run_continuations();
}

/// Continues a poll after its first call, if more calls may be due.
void channel_core::call_more() noexcept {
  call_all(take_due());
  end_caller();
}

/// Polls a channel for which the short path is not enough: it has a hub, an event loop, guarded or
/// lost memory, suspect results, or calls that wait for more than requests in the send queue. Until
/// the alarm is checked next, a channel also comes here if it had one of these.
void channel_core::poll_with_care() noexcept {
  if (connection_.has_loop()) connection_.take_loop_events();
  // Usually the program calls `poll` because the hub has reported this channel. Taking the
  // completions that the hub has found costs less than polling for more.
  if (member_ && take_found() && !(member_->hub && member_->hub->is_lost())) {
    take_hang_up();
  } else {
    collect_with_care();
    if (connection_.has_loop()) notice_end();
  }
  run_continuations();
}

void channel_core::poll_found() noexcept {
  static_cast<void>(take_found());
  if (member_->hub && member_->hub->is_lost()) collect();
  take_hang_up();
  run_continuations();
}

void channel_core::run_continuations() noexcept {
  continuation* const due = take_due();
  call_due(due, due == nullptr || polls_.must_check_alarm());
}

VERBSPP_DATA_PATH continuation* channel_core::take_due() noexcept {
  if (continuation* const met = polls_.take_met()) return met;
  return polls_.take_finished(sends_.completed(), receives_.completed());
}

/// Calls `due`, which may be null, and the other continuations that are due. If `checks_alarm` is
/// true, also handles expired limits.
void channel_core::call_due(continuation* due, bool checks_alarm) noexcept {
  if (due == nullptr && polls_.is_empty()) return;
  // The check is recorded before a continuation can poll.
  if (checks_alarm) {
    polls_.note_check();
    if (!needs_care_to_collect_ && !connection_.has_loop() && !sends_.is_suspect())
      polls_.end_care();
  }
  ++callers_;
  call_all(due);
  if (checks_alarm) call_late();
  if (member_) pass_alarm();
  end_caller();
}

/// Calls `due`, which may be null, and then the other continuations that are due or become due.
void channel_core::call_all(continuation* due) noexcept {
  // A continuation may take completions, which make other continuations due. Without a maximum,
  // this could go on as long as the peer answers. A closed channel has no peer, and its waits must
  // not last until the next connection.
  for (unsigned left = 1024; due != nullptr; due = take_due()) {
    due->call();
    if (--left == 0 && state() != channel_state::closed) return polls_.poll_again();
  }
}

/// Does nothing unless the alarm is due. Handles expired limits and stop requests: breaks the
/// connection if a request has expired, and otherwise calls the continuations of expired
/// conditions. After that, calls the continuations that are due.
void channel_core::call_late() noexcept {
  if (clock::now() < polls_.alarm()) return;
  give_up_expired();
  call_all(take_due());
}

void channel_core::give_up_expired() noexcept {
  const auto now = clock::now();
  while (continuation* const expired =
             polls_.take_expired(now, sends_.completed(), receives_.completed())) {
    if (!expired->is_waiting()) {
      expired->call();
      continue;
    }
    static_cast<void>(give_up(wait_end::limit,
                              reason_of(wait_end::limit, expired->limit(), expired->is_default())));
    return;
  }
}

void channel_core::need_care_to_collect() noexcept {
  needs_care_to_collect_ = true;
  polls_.need_care();
}

void channel_core::suspect_results() noexcept {
  sends_.set_suspect(true);
  polls_.need_care();
}

void channel_core::begin_limit_of(continuation& one) noexcept {
  polls_.begin_limit(one);
  if (member_) pass_alarm();
}

void channel_core::wake_poller() const noexcept {
  // `member_` cannot be used here, because the channel's thread may be destroying the channel.
  if (const hub_reference& hub = connection_.settings().hub) hub->report(id_);
  connection_.wake();
}

void channel_core::set_alarm(wait_limit::time_point at) noexcept {
  if (member_->hub && at < member_->alarm()) member_->hub->set_alarm(*member_.get(), at);
}

bool channel_core::report_events_of(int descriptor) noexcept {
  return member_->hub && member_->hub->report_events_of(*member_.get(), descriptor);
}

void channel_core::take_hub_events() noexcept {
  if (member_->hub) member_->hub->look_at_events();
}

// The calls.

channel_polls::channel_polls(stoppable_sleep& poller, std::chrono::nanoseconds usual_limit) noexcept
    : stoppable_sleep{.wake =
                          [](stoppable_sleep& self) noexcept {
                            auto& polls = static_cast<channel_polls&>(self);
                            __atomic_store_n(&polls.has_stop_, true, __ATOMIC_SEQ_CST);
                            polls.poller_.wake(polls.poller_);
                          }},
      usual_limit_(usual_limit),
      poller_(poller),
      has_handed_(
          [](continuation& self) noexcept {
            auto* const polls = static_cast<condition&>(self).subject();
            static_cast<channel_polls*>(polls)->make_handed_calls();
          },
          [](condition& self) noexcept {
            const auto* const polls = static_cast<channel_polls*>(self.subject());
            return polls->has_handed() ? condition::state::met : condition::state::unmet;
          },
          this) {
  has_handed_.set_limit(wait_limit::forever());
}

void channel_polls::expect_call() noexcept {
  ++expecting_;
  if (!has_handed_.is_waiting()) add_condition(has_handed_);
}

void channel_polls::stop_expecting() noexcept {
  if (--expecting_ == 0) has_handed_.cancel();
}

void channel_polls::hand_over(continuation& call) noexcept {
  handed_.push(call);
  poller_.wake(poller_);
}

void channel_polls::make_handed_calls() noexcept {
  handed_.run();
  if (expecting_ != 0 && !has_handed_.is_waiting()) add_condition(has_handed_);
}

void channel_polls::poll_again() noexcept { alarm_ = std::min(alarm_, clock::now()); }

bool channel_polls::has_condition_of(const void* subject) noexcept {
  bool is_found = false;
  conditions_.for_each([&](continuation& one) {
    is_found = is_found || static_cast<condition&>(one).subject() == subject;
  });
  return is_found;
}

void channel_polls::end_subject(const void* subject) noexcept {
  conditions_.for_each([&](continuation& one) {
    auto& of = static_cast<condition&>(one);
    if (of.subject() != subject) return;
    of.forget_subject();
    poll_again();
  });
}

continuation* channel_polls::take_any() noexcept {
  for (continuation_list* list : {&sends_, &receives_, &conditions_})
    if (!list->is_empty()) return take_first(*list);
  return nullptr;
}

continuation* channel_polls::find_met() noexcept {
  continuation* met = nullptr;
  conditions_.for_each([&](continuation& one) {
    if (met != nullptr) return;
    const condition::state seen = static_cast<condition&>(one).check();
    if (seen == condition::state::met)
      met = &one;
    else if (seen == condition::state::unmet_so_far)
      alarm_ = std::min(alarm_, clock::now() + longest_nap);
  });
  if (met != nullptr) met->cancel();
  return met;
}

continuation* channel_polls::take_expired(time_point now, std::uint64_t sends,
                                          std::uint64_t receives) noexcept {
  continuation* expired = nullptr;
  // The stop tokens are read after the flag is cleared, so no stop request is lost.
  __atomic_store_n(&has_stop_, false, __ATOMIC_SEQ_CST);
  alarm_ = (time_point::max)();
  has_tick_ = false;
  needs_care_to_add_ = true;
  const wait_limit of_default(usual_limit_);
  const auto look = [&](continuation& one) {
    if (!one.has_limit()) one.begin_default(of_default.deadline());
    if (one.limit().deadline() > now && !one.limit().stop_requested())
      alarm_ = std::min(alarm_, one.alarm());
    else if (expired == nullptr)
      expired = &one;
    else
      alarm_ = now;
  };
  sends_.for_each(look, sends);
  receives_.for_each(look, receives);
  conditions_.for_each([&](continuation& one) {
    const bool had_one = expired != nullptr;
    look(one);
    if (!had_one && expired == &one) one.cancel();
  });
  if (expired != nullptr) expired->expire();
  return expired;
}

void channel_polls::set_alarm(continuation& one) noexcept {
  if (one.has_limit()) {
    one.wake_by_stop(*this);
    alarm_ = std::min(alarm_, one.alarm());
  } else {
    alarm_ = std::min(alarm_, next_tick(usual_limit_));
    has_tick_ = true;
    needs_care_to_add_ = has_hub_;
  }
}

}  // namespace verbspp::detail
