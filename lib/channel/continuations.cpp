// SPDX-License-Identifier: Apache-2.0
#include "channel/waiting.hpp"
#include <verbspp/channel/detail/continuations.hpp>

#include <algorithm>
#include <chrono>

namespace verbspp::detail {

namespace {

using clock = std::chrono::steady_clock;

/// The time of the next alarm. A default limit starts to run only at an alarm, so it may be
/// exceeded by the time between two alarms.
clock::time_point next_tick(std::chrono::nanoseconds usual_limit) noexcept {
  return wait_limit(usual_limit / 4 + std::chrono::nanoseconds(1)).deadline();
}

}  // namespace

void continuations::poll_again() noexcept { alarm_ = std::min(alarm_, clock::now()); }

bool continuations::has_condition_of(const void* subject) noexcept {
  bool is_found = false;
  conditions_.for_each([&](continuation& one) {
    is_found = is_found || static_cast<condition&>(one).subject() == subject;
  });
  return is_found;
}

void continuations::end_subject(const void* subject) noexcept {
  conditions_.for_each([&](continuation& one) {
    auto& of = static_cast<condition&>(one);
    if (of.subject() != subject) return;
    of.forget_subject();
    poll_again();
  });
}

continuation* continuations::take_any() noexcept {
  for (continuation_list* list : {&sends_, &receives_, &conditions_})
    if (!list->is_empty()) return take_first(*list);
  return nullptr;
}

continuation* continuations::take_met() noexcept {
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

continuation* continuations::take_expired(time_point now,
                                          const std::chrono::nanoseconds& usual_limit,
                                          std::uint64_t sends, std::uint64_t receives) noexcept {
  continuation* expired = nullptr;
  // The stop tokens are read after the flag is cleared, so no stop request is lost.
  __atomic_store_n(&has_stop_, false, __ATOMIC_SEQ_CST);
  alarm_ = (time_point::max)();
  has_tick_ = false;
  const wait_limit of_default(usual_limit);
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

void continuations::set_alarm(continuation& one,
                              const std::chrono::nanoseconds& usual_limit) noexcept {
  if (one.has_limit()) {
    one.wake_by_stop(polls_);
    alarm_ = std::min(alarm_, one.alarm());
  } else {
    alarm_ = std::min(alarm_, next_tick(usual_limit));
    has_tick_ = true;
  }
}

}  // namespace verbspp::detail
