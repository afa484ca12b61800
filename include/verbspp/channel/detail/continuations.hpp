// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/continuation.hpp>

#include <chrono>
#include <cstdint>

namespace verbspp::detail {

/// A continuation that can also wait for something other than a request, such as a message of an
/// inbox.
class condition : public continuation {
 public:
  enum class state : std::uint8_t {
    met,
    unmet,         ///< may be met by a completion, or by another event that wakes the thread
    unmet_so_far,  ///< may be met by an event that wakes no thread: check again soon
  };
  using test = state (*)(condition& self) noexcept;

  /// \param is_met null if the condition waits only for a request
  /// \param about the object that `subject` returns, such as an inbox or the core of the channel;
  /// may be null
  condition(function called, test is_met, void* about = nullptr) noexcept
      : continuation(called), is_met_(is_met), subject_(about) {}
  condition(const condition&) = delete;
  condition& operator=(const condition&) = delete;
  ~condition() = default;

  [[nodiscard]] state check() noexcept { return is_met_(*this); }
  [[nodiscard]] void* subject() const noexcept { return subject_; }
  void forget_subject() noexcept { subject_ = nullptr; }

 private:
  test is_met_;
  void* subject_;
};

/// The continuations of a channel, and the earliest time at which one of their limits may be
/// reached.
class continuations {
 public:
  using time_point = wait_limit::time_point;

  /// \param polls is woken when a token with callbacks requests a stop for a continuation
  explicit continuations(stoppable_sleep& polls) noexcept : polls_(polls) {}
  [[nodiscard]] VERBSPP_DATA_PATH bool is_empty() const noexcept {
    return sends_.is_empty() && receives_.is_empty() && conditions_.is_empty();
  }
  /// Adds a continuation for a request in the send queue.
  /// \param usual_limit the channel's default limit, for a continuation without a limit
  VERBSPP_DATA_PATH void add_send(continuation& one, std::uint64_t number,
                                  const std::chrono::nanoseconds& usual_limit) noexcept {
    add(sends_, one, number, usual_limit);
  }
  /// Adds a continuation for a receive.
  /// \param number the number of the receive; receives are numbered in the order of posting
  VERBSPP_DATA_PATH void add_receive(continuation& one, std::uint64_t number,
                                     const std::chrono::nanoseconds& usual_limit) noexcept {
    add(receives_, one, number, usual_limit);
  }
  /// Adds a new continuation for the request in the send queue that was posted last.
  VERBSPP_DATA_PATH void add_last_send(continuation& one, std::uint64_t number,
                                       const std::chrono::nanoseconds& usual_limit) noexcept {
    sends_.append(one, number);
    begin_limit(one, usual_limit);
  }
  void add_condition(condition& one, const std::chrono::nanoseconds& usual_limit) noexcept {
    add(conditions_, one, 0, usual_limit);
  }

  /// Makes the program call `poll` soon, because continuations may be due for which no completion
  /// will come.
  void poll_again() noexcept;
  /// True if a condition that depends on `subject` is waiting.
  [[nodiscard]] bool has_condition_of(const void* subject) noexcept;
  /// Makes the conditions that depend on `subject` due, because `subject` is being destroyed.
  void end_subject(const void* subject) noexcept;

  /// Makes the alarm due, because a stop was requested. Any thread may call this.
  void note_stop() noexcept { __atomic_store_n(&has_stop_, true, __ATOMIC_SEQ_CST); }
  /// True if a continuation waits, and `take_expired` has not been called since the last
  /// `note_stop`.
  [[nodiscard]] bool has_stop() const noexcept {
    return !is_empty() && __atomic_load_n(&has_stop_, __ATOMIC_SEQ_CST);
  }

  /// Removes and returns the next continuation to call; null if none is due.
  /// \param sends, receives functions; each returns the number below which all requests of its
  /// queue have finished
  template <class Sends, class Receives>
  [[nodiscard]] VERBSPP_DATA_PATH continuation* take_due(Sends sends, Receives receives) noexcept {
    // Conditions come first, because the continuation of a request could post another request,
    // which would take the room that a condition waits for.
    if (!conditions_.is_empty())
      if (continuation* const met = take_met()) return met;
    if (sends_.has_below(sends())) return take_first(sends_);
    return receives_.has_below(receives()) ? take_first(receives_) : nullptr;
  }
  /// If this is false, `take_due` would return null. The parameters are the numbers that its
  /// functions return.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_due(std::uint64_t sends,
                                                    std::uint64_t receives) const noexcept {
    return !conditions_.is_empty() || sends_.has_below(sends) || receives_.has_below(receives);
  }
  /// Removes and returns any continuation; null if there is none.
  [[nodiscard]] continuation* take_any() noexcept;

  /// The time at which `take_expired` has to be called next.
  [[nodiscard]] time_point alarm() const noexcept {
    if (has_stop()) return {};  // long ago; unlike the minimum, it can be subtracted
    return is_empty() ? (time_point::max)() : alarm_;
  }
  /// Returns a continuation whose limit has been reached, and removes it if it is a condition; null
  /// if no limit has been reached. Also sets the next alarm. Continuations of requests that have
  /// finished do not expire: they are due.
  /// \param sends, receives the number below which all requests of the queue have finished
  [[nodiscard]] continuation* take_expired(time_point now,
                                           const std::chrono::nanoseconds& usual_limit,
                                           std::uint64_t sends, std::uint64_t receives) noexcept;

 private:
  VERBSPP_DATA_PATH void add(continuation_list& list, continuation& one, std::uint64_t key,
                             const std::chrono::nanoseconds& usual_limit) noexcept {
    list.add(one, key);
    begin_limit(one, usual_limit);
  }
  VERBSPP_DATA_PATH void begin_limit(continuation& one,
                                     const std::chrono::nanoseconds& usual_limit) noexcept {
    // The default limit only starts to count at the next alarm, so adding a continuation usually
    // does not need to read the clock.
    if (one.has_limit() || !has_tick_) [[unlikely]]
      set_alarm(one, usual_limit);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static continuation* take_first(
      continuation_list& list) noexcept {
    continuation& first = list.first();
    if (!first.is_waiting()) __builtin_unreachable();
    return &first.taken();
  }
  [[nodiscard]] continuation* take_met() noexcept;
  void set_alarm(continuation& one, const std::chrono::nanoseconds& usual_limit) noexcept;

  continuation_list sends_{};
  continuation_list receives_{};
  continuation_list conditions_{};
  time_point alarm_ = (time_point::max)();
  bool has_tick_ = false;  ///< the alarm is early enough for default limits that have not started
  stoppable_sleep& polls_;
  bool has_stop_ = false;  ///< accessed atomically
};

}  // namespace verbspp::detail
