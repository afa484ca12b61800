// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

class engine;

/// The thread that makes progress while the program doesn't poll. While it does,
/// the thread only looks every millisecond whether it still does, because two that
/// do the same work are slower than one; when there is nothing to do, it sleeps.
class driver {
 public:
  explicit driver(engine& engine) noexcept : engine_(engine) {}
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;

  /// 0 or an errno.
  int start() noexcept;
  void stop() noexcept;
  bool running() const noexcept { return running_; }

  /// Someone polls and so makes progress.
  void polled() noexcept { polls_.fetch_add(1, std::memory_order_relaxed); }

  /// There is something to do. A thread that is at work or on standby will see.
  void wake_if_asleep() noexcept {
    if (doing_.load(std::memory_order_relaxed) == activity::asleep) wake();
  }
  /// There will be something to do. Under the engine's lock.
  void wake_if_asleep_at(std::int64_t when) noexcept {
    if (wakes_at_ == 0 || when < wakes_at_) wake_if_asleep();
  }
  /// The program is about to stop polling.
  void wake_if_on_standby() noexcept {
    if (doing_.load(std::memory_order_relaxed) == activity::standby) wake();
  }

  /// In a forked child, where there is no thread.
  void forget() noexcept;

 private:
  enum class activity : std::uint8_t { working, standby, asleep };

  static void* enter(void* self) noexcept;
  void run() noexcept;
  void wake() noexcept;
  /// Whether the program polls often enough to be relied on.
  bool program_polls() noexcept;
  /// Looks whether something waits that the program could have seen.
  void notice_neglect() noexcept;
  /// Until the doorbell rings, the descriptor (if not negative) is readable, or the
  /// nanoseconds (if not negative) are over.
  void sleep(int extra_descriptor, std::int64_t timeout) noexcept;

  engine& engine_;
  pthread_t thread_{};
  int doorbell_ = -1;
  bool running_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<activity> doing_{activity::working};
  std::atomic<std::uint32_t> polls_{0};
  std::uint32_t polls_seen_ = 0;
  /// When it ends its sleep by itself, 0 for never.
  std::int64_t wakes_at_ = 0;
  std::int64_t window_start_ = 0;
  bool busy_polled_ = false;
  std::int64_t neglected_until_ = 0;
};

}  // namespace softverbs
