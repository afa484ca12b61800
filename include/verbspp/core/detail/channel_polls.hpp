// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/stop_callback.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/wait/detail/condition.hpp>
#include <verbspp/wait/detail/handed_calls.hpp>

#include <chrono>
#include <cstdint>

namespace verbspp::detail {

/// The calls that the polls of a channel make: continuations of requests and of conditions, and
/// calls that other threads hand over. `channel_core::poll` makes them.
///
/// A call waits in one list until it is taken, cancelled or destroyed. A list of requests is sorted
/// by their numbers, so its first element tells whether any of its calls is due. No limit of a
/// waiting call is earlier than the alarm, except that a default limit starts to count only at an
/// alarm.
///
/// The functions belong to the thread that uses the channel, except for `hand_over` and `withdraw`.
class channel_polls : stoppable_sleep {
 public:
  using time_point = wait_limit::time_point;

  /// \param poller wakes the thread or event loop that polls; any thread may call it
  /// \param usual_limit the channel's default limit, for calls without a limit
  channel_polls(stoppable_sleep& poller, std::chrono::nanoseconds usual_limit) noexcept;
  channel_polls(const channel_polls&) = delete;
  channel_polls& operator=(const channel_polls&) = delete;
  ~channel_polls() = default;

  [[nodiscard]] VERBSPP_DATA_PATH bool is_empty() const noexcept {
    return sends_.is_empty() && receives_.is_empty() && conditions_.is_empty();
  }

  // Adding calls.

  /// Adds a continuation for a request in the send queue.
  VERBSPP_DATA_PATH void add_send(continuation& one, std::uint64_t number) noexcept {
    add(sends_, one, number);
  }
  /// Adds a continuation for a receive.
  /// \param number the number of the receive; receives are numbered in the order of posting
  VERBSPP_DATA_PATH void add_receive(continuation& one, std::uint64_t number) noexcept {
    needs_care_ = true;
    add(receives_, one, number);
  }
  void add_condition(condition& one) noexcept {
    needs_care_ = true;
    add(conditions_, one, 0);
  }
  /// Adds a new continuation for the request in the send queue that was posted last. If it has a
  /// limit, or `needs_care_to_add` is true, the caller then calls `begin_limit`.
  VERBSPP_DATA_PATH void append_send(continuation& one, std::uint64_t number) noexcept {
    sends_.append(one, number);
  }
  /// True if default limits need an alarm that is not set, or the channel is in a hub.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care_to_add() const noexcept {
    return needs_care_to_add_;
  }
  VERBSPP_DATA_PATH void begin_limit(continuation& one) noexcept {
    // The default limit only starts to count at the next alarm, so adding a continuation usually
    // does not need to read the clock.
    if (one.has_limit() || !has_tick_) [[unlikely]]
      set_alarm(one);
  }
  /// True if a condition that depends on `subject` is waiting.
  [[nodiscard]] bool has_condition_of(const void* subject) noexcept;
  /// Makes the conditions that depend on `subject` due, because `subject` is being destroyed.
  void end_subject(const void* subject) noexcept;

  // Calls that other threads hand over, such as the effects of stop requests. They wait behind a
  // condition, which is in its list only while an operation expects a call.

  /// Makes polls check for calls that other threads have handed over, until each `expect_call` has
  /// been undone by a `stop_expecting`.
  void expect_call() noexcept;
  void stop_expecting() noexcept;
  /// Makes the next poll execute this call, and wakes the poller. Any thread may call this.
  /// \pre an operation on the channel's thread expects the call
  void hand_over(continuation& call) noexcept;
  /// Withdraws the call, unless it was already made. Any thread may call this.
  void withdraw(continuation& call) noexcept { handed_.withdraw(call); }

  // Awaited requests that are queued until a work queue has room.

  /// Adjusts the number of these requests. Later awaited requests queue behind them; requests that
  /// the program posts directly do not.
  void note_delayed(int change) noexcept {
    delayed_ += static_cast<std::uint32_t>(change);
    care_to_await_ += static_cast<std::uint32_t>(change);
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_delayed() const noexcept { return delayed_ != 0; }
  /// True if `has_delayed`, or after `need_care_to_await`.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care_to_await() const noexcept {
    return care_to_await_ != 0;
  }
  void need_care_to_await() noexcept { ++care_to_await_; }

  // Care. In the usual case, only continuations of requests in the send queue wait.

  /// False if, since the last `end_care`, no condition and no continuation of a receive has waited,
  /// and `need_care` was not called.
  [[nodiscard]] VERBSPP_DATA_PATH bool needs_care() const noexcept { return needs_care_; }
  void need_care() noexcept { needs_care_ = true; }
  /// Makes `needs_care` true only if a condition or a continuation of a receive waits.
  void end_care() noexcept { needs_care_ = !conditions_.is_empty() || !receives_.is_empty(); }
  /// Records that the channel is in a hub, to which it has to pass each alarm.
  void note_hub() noexcept { has_hub_ = needs_care_to_add_ = true; }

  // Taking calls that are due. A condition may take completions when it is checked, so conditions
  // are checked before the numbers of finished requests are read. In addition, the continuation of
  // a request could post another request, which would take the room that a condition waits for.

  /// Removes and returns the continuation of the first condition that is met; null if there is
  /// none.
  [[nodiscard]] VERBSPP_DATA_PATH continuation* take_met() noexcept {
    return conditions_.is_empty() ? nullptr : find_met();
  }
  /// Removes and returns the next continuation of a finished request; null if there is none.
  /// \param sends, receives the number below which all requests of the queue have finished
  [[nodiscard]] VERBSPP_DATA_PATH continuation* take_finished(std::uint64_t sends,
                                                              std::uint64_t receives) noexcept {
    if (sends_.has_below(sends)) return take_first(sends_);
    return receives_.has_below(receives) ? take_first(receives_) : nullptr;
  }
  /// Like `take_finished`, for the requests of the send queue only.
  [[nodiscard]] VERBSPP_DATA_PATH continuation* take_sent(std::uint64_t sends) noexcept {
    return sends_.has_below(sends) ? take_first(sends_) : nullptr;
  }
  /// If this is false, `take_met` and `take_finished` would return null.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_due(std::uint64_t sends) const noexcept {
    return needs_care_ || sends_.has_below(sends);
  }
  /// Removes and returns any call; null if there is none.
  [[nodiscard]] continuation* take_any() noexcept;

  // Limits and stop requests.

  /// Counts a poll that has a call to make. \returns true if the poll has to check the alarm, too:
  /// reading the clock costs as much as a call, so a busy channel does that only in every 32nd poll
  [[nodiscard]] VERBSPP_DATA_PATH bool must_check_alarm() noexcept { return --unchecked_ == 0; }
  /// Records that a poll checks the alarm.
  void note_check() noexcept { unchecked_ = polls_per_check; }
  /// Makes the program poll soon, because calls may be due for which no completion will come.
  void poll_again() noexcept;
  /// The time at which `take_expired` has to be called next.
  [[nodiscard]] time_point alarm() const noexcept {
    if (has_stop()) return {};  // long ago; unlike the minimum, it can be subtracted
    return is_empty() ? (time_point::max)() : alarm_;
  }
  /// Returns a continuation whose limit has been reached, and removes it if it is a condition; null
  /// if no limit has been reached. Also sets the next alarm. Continuations of requests that have
  /// finished do not expire: they are due.
  /// \param sends, receives the number below which all requests of the queue have finished
  [[nodiscard]] continuation* take_expired(time_point now, std::uint64_t sends,
                                           std::uint64_t receives) noexcept;
  /// True if a continuation waits, and a stop was requested through a token with callbacks since
  /// the last `take_expired`.
  [[nodiscard]] bool has_stop() const noexcept {
    return !is_empty() && __atomic_load_n(&has_stop_, __ATOMIC_SEQ_CST);
  }
  /// True if another thread has handed over a call.
  [[nodiscard]] bool has_handed() const noexcept { return handed_.has_some(); }

 private:
  static constexpr std::uint32_t polls_per_check = 32;

  VERBSPP_DATA_PATH void add(continuation_list& list, continuation& one,
                             std::uint64_t key) noexcept {
    list.add(one, key);
    begin_limit(one);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static continuation* take_first(
      continuation_list& list) noexcept {
    continuation& first = list.first();
    if (!first.is_waiting()) __builtin_unreachable();
    return &first.taken();
  }
  [[nodiscard]] continuation* find_met() noexcept;
  void set_alarm(continuation& one) noexcept;
  void make_handed_calls() noexcept;

  continuation_list sends_{};
  continuation_list receives_{};
  continuation_list conditions_{};
  std::uint32_t unchecked_ = polls_per_check;  ///< polls with calls until the alarm is checked
  bool needs_care_ = false;
  bool needs_care_to_add_ = true;  ///< `has_tick_` is false, or the channel is in a hub
  bool has_hub_ = false;
  bool has_tick_ = false;  ///< the alarm is early enough for default limits that have not started
  bool has_stop_ = false;  ///< accessed atomically
  time_point alarm_ = (time_point::max)();
  std::chrono::nanoseconds usual_limit_;
  stoppable_sleep& poller_;
  handed_calls handed_{};
  condition has_handed_;             ///< is waiting while a call is expected
  std::uint32_t expecting_ = 0;      ///< operations that expect a call
  std::uint32_t delayed_ = 0;        ///< see `note_delayed`
  std::uint32_t care_to_await_ = 0;  ///< the number of reasons for `needs_care_to_await`
};

}  // namespace verbspp::detail
