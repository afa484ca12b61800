// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/fair_mutex.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

/// The thread that makes progress while the program doesn't poll. While it does,
/// the thread only looks every half millisecond whether it still does, because two that
/// do the same work are slower than one; when there is nothing to do, it sleeps.
class progress_thread {
 public:
  /// What there is to do.
  class work {
   public:
    virtual fair_mutex& lock() noexcept = 0;
    /// A program sleeps until something is done. Also without the lock.
    virtual bool has_sleepers() const noexcept = 0;
    /// Something was left for the next progress. Also without the lock.
    virtual bool was_rung() const noexcept = 0;
    // What follows is called under that lock.
    /// Does some of it. True if there is more.
    virtual bool progress(bool thoroughly) = 0;
    /// When there will be something to do by itself, 0 for never.
    virtual nanoseconds next_deadline() const noexcept = 0;
    /// Has the descriptor tell of all that comes in from here on. False if something has.
    virtual bool may_sleep() noexcept = 0;
    /// Whether something has come in that nobody has looked at.
    virtual bool has_arrived() noexcept = 0;

    /// Readable when there may be something to do, if it may be slept. Without the lock.
    virtual int descriptor() const noexcept = 0;

   protected:
    ~work() = default;
  };

  explicit progress_thread(work& what) noexcept : work_(what) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;

  /// 0 or an errno.
  int start() noexcept;
  void stop() noexcept;
  bool running() const noexcept { return running_; }

  /// Someone polls and so makes progress.
  void polled() noexcept { polls_.fetch_add(1, std::memory_order_relaxed); }

  /// There is something to do. A thread that is at work or on standby will see.
  void wake_if_asleep() noexcept {
    activity seen = activity::asleep;
    // Only once, until it sleeps again.
    if (doing_.load() == seen && doing_.compare_exchange_strong(seen, activity::working)) wake();
  }
  /// There will be something to do. Under its lock.
  void wake_if_asleep_at(nanoseconds when) noexcept {
    if (wakes_at_ == 0 || when < wakes_at_) wake_if_asleep();
  }
  /// The program is about to stop polling.
  void wake_if_on_standby() noexcept {
    if (doing_.load() == activity::standby) wake();
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
  void sleep(int extra_descriptor, nanoseconds timeout) noexcept;

  work& work_;
  pthread_t thread_{};
  int doorbell_ = -1;
  bool running_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<activity> doing_{activity::working};
  std::atomic<std::uint32_t> polls_{0};
  std::uint32_t polls_seen_ = 0;
  /// When it ends its sleep by itself, 0 for never.
  nanoseconds wakes_at_ = 0;
  nanoseconds window_start_ = 0;
  bool busy_polled_ = false;
  nanoseconds neglected_until_ = 0;
};

}  // namespace softverbs
