// SPDX-License-Identifier: Apache-2.0
/// \file
/// Measures by how much waits exceed their limits.
#pragma once

#include "soak.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace verbspp::soak {

/// Checks that waits end in time, and takes into account that the machine may be busy. A control
/// thread, which is almost idle, measures how much time it loses to other load. A wait may end
/// later than its limit by the 100 ms that the library promises, plus ten times that loss. The
/// factor is so large because several threads are involved when a wait ends, and each may have to
/// wait for a processor several times. Only `mark` is thread-safe.
class punctuality {
 public:
  punctuality() : control_([this](const std::stop_token& stop) { lose(stop); }) {}

  /// Called before a wait. Pass the result to `note` after the wait.
  [[nodiscard]] std::chrono::nanoseconds mark() const { return lost(); }
  /// Called when a wait with this limit has ended.
  void note(clock::time_point limit, std::chrono::nanoseconds marked, const char* what) {
    const auto late = clock::now() - limit;
    if (late < 0ns) return;  // the wait was ended by another event
    const auto excused = lost() - marked;
    ++waits_;
    if (late > latest_) {
      latest_ = late;
      excuse_ = excused;
    }
    if (late > 100ms + 10 * excused && too_late_.empty())
      too_late_ = std::string(what) + " ended " + milliseconds(late) +
                  " ms after its limit, while the machine delayed a sleeping thread by " +
                  milliseconds(excused) + " ms";
  }

  /// Returns a description of a wait that ended too late, or an empty string if none did.
  [[nodiscard]] const std::string& too_late() const { return too_late_; }
  [[nodiscard]] std::string text() const {
    return std::to_string(waits_) + " waits ended at their limits; the longest delay was " +
           milliseconds(latest_) + " ms, during which the machine delayed a sleeping thread by " +
           milliseconds(excuse_) + " ms";
  }

 private:
  static std::string milliseconds(std::chrono::nanoseconds time) {
    return std::to_string(time.count() / 1'000'000) + '.' +
           std::to_string(time.count() / 100'000 % 10);
  }
  /// Returns the time that the control thread has lost so far, including the current delay, if any.
  /// Never decreases.
  [[nodiscard]] std::chrono::nanoseconds lost() const {
    const std::lock_guard guard(lock_);
    return lost_ + (std::max)(clock::now() - began_ - step, clock::duration(0));
  }
  static std::chrono::nanoseconds processor_time() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  /// Alternates between sleeping and working, and adds up how much longer each turn takes than it
  /// should.
  void lose(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto worked = processor_time();
      // steady: this sleep is part of the measurement, which determines by how much sleeps are too
      // long
      std::this_thread::sleep_for(step - work);
      while (processor_time() - worked < work) {
      }
      const std::lock_guard guard(lock_);
      const auto ended = clock::now();
      lost_ += (std::max)(ended - began_ - step, clock::duration(0));
      began_ = ended;
    }
  }

  static constexpr std::chrono::nanoseconds step = 1ms;
  static constexpr std::chrono::nanoseconds work = 50us;

  mutable std::mutex lock_;
  std::chrono::nanoseconds lost_{0};
  clock::time_point began_ = clock::now();
  std::chrono::nanoseconds latest_{0};
  std::chrono::nanoseconds excuse_{0};
  std::uint64_t waits_ = 0;
  std::string too_late_{};
  std::jthread control_;
};

}  // namespace verbspp::soak
