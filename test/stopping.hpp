// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stop tokens that count how often they are polled and how many callbacks they have, for tests in
/// which a stop request wakes a wait.
#pragma once

#include <verbspp/base/wait_limit.hpp>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

namespace verbspp::test {

/// A source of stop tokens that, like those of std::execution, have a member template
/// `callback_type`.
class counting_source {
 public:
  class token {
   public:
    /// A registered callback. Its constructor and destructor count the callbacks that exist.
    template <class Function>
    class callback_type {
     public:
      callback_type(const token& of, Function function) noexcept
          : of_(of.of_), registered_(of.of_->source_.get_token(), std::move(function)) {
        ++of_->begun_;
        ++of_->callbacks_;
      }
      callback_type(const callback_type&) = delete;
      callback_type& operator=(const callback_type&) = delete;
      ~callback_type() { --of_->callbacks_; }

     private:
      counting_source* of_;
      std::stop_callback<Function> registered_;
    };

    explicit token(counting_source& of) noexcept : of_(&of) {}
    [[nodiscard]] bool stop_requested() const noexcept {
      ++of_->polls_;
      return of_->source_.stop_requested();
    }

   private:
    counting_source* of_;
  };

  [[nodiscard]] token get_token() noexcept { return token(*this); }
  void request_stop() noexcept { source_.request_stop(); }

  /// The number of calls of `stop_requested()`.
  [[nodiscard]] int polls() const noexcept { return polls_; }
  /// Returns how many callbacks are registered now. `begun` returns how many were ever registered.
  [[nodiscard]] int callbacks() const noexcept { return callbacks_; }
  [[nodiscard]] int begun() const noexcept { return begun_; }

 private:
  std::stop_source source_{};
  std::atomic<int> polls_{0};
  std::atomic<int> callbacks_{0};
  std::atomic<int> begun_{0};
};

/// The observations about a wait that a stop request has ended.
struct stopped_sleep {
  /// The wait was asleep when the stop was requested. In other words, it had registered a callback,
  /// and had not ended.
  bool has_slept = false;
  bool has_polled = false;      ///< the thread polled the token although it was asleep
  bool is_registered = false;   ///< the callback was still registered after the wait
  bool has_ended_well = false;  ///< the return value of `wait`

  /// Returns true if the stop request woke the wait without a poll, the wait ended correctly, and
  /// its callback was removed.
  [[nodiscard]] bool is_as_promised() const noexcept {
    return has_slept && !has_polled && !is_registered && has_ended_well;
  }
};

/// Calls `wait` on another thread, with a limit that only a stop request can end. Requests the stop
/// after the thread has slept for a while. `wait` must return true if it ended correctly.
template <class Wait>
[[nodiscard]] stopped_sleep stop_a_sleep(Wait wait) {
  using clock = std::chrono::steady_clock;
  counting_source source;
  stopped_sleep seen;
  std::atomic<bool> has_ended{false};
  std::thread waiting([&] {
    seen.has_ended_well = wait(wait_limit(source.get_token()));
    has_ended = true;
  });
  const auto deadline = clock::now() + std::chrono::seconds(20);
  while (source.callbacks() == 0 && !has_ended && clock::now() < deadline)
    std::this_thread::yield();
  // A wait may test the token a few more times before it sleeps, but a thread that polls would do
  // so every 10 ms.
  bool has_polled = true;
  while (has_polled && !has_ended && clock::now() < deadline) {
    const int polls = source.polls();
    // steady: the check is valid for any longer pause as well
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    has_polled = source.polls() != polls;
  }
  const bool has_slept = source.callbacks() == 1 && !has_ended;
  source.request_stop();
  waiting.join();
  seen.has_polled = has_polled;
  seen.has_slept = has_slept;
  seen.is_registered = source.callbacks() != 0;
  return seen;
}

}  // namespace verbspp::test
