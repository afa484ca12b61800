// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/fair_mutex.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

/// The thread that makes progress while the program doesn't poll. While the program polls, the
/// thread leaves the work to it, because two threads doing the same work are slower than one. The
/// thread then only wakes up every half millisecond, to check whether the program still polls and
/// leaves no work undone. It sleeps when there is nothing to do.
class progress_thread {
 public:
  /// The work of the thread.
  class work {
   public:
    virtual fair_mutex& lock() noexcept = 0;
    /// True if a thread of the program may be waiting for an event of a completion queue. May be
    /// called without the lock.
    virtual bool has_sleepers() const noexcept = 0;
    /// True if work was left for the next call of `progress`. May be called without the lock.
    virtual bool was_rung() const noexcept = 0;
    /// Does some of the work. Returns true if more work may be left. Requires the lock, like the
    /// functions below, unless their comments say otherwise.
    virtual bool progress(bool thoroughly) = 0;
    /// Returns the time from which there may be work even if no event occurs; 0 for never.
    virtual nanoseconds next_deadline() const noexcept = 0;
    /// Makes the descriptor report all later arrivals. Returns false if something has arrived
    /// already.
    virtual bool may_sleep() noexcept = 0;
    /// True if something has arrived that no thread has processed.
    virtual bool has_arrived() noexcept = 0;

    /// After `may_sleep` has returned true, this descriptor becomes readable when there may be
    /// work. May be called without the lock.
    virtual int descriptor() const noexcept = 0;

   protected:
    ~work() = default;
  };

  explicit progress_thread(work& what) noexcept : work_(what) {}
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;

  /// Starts the thread. Returns 0 or an errno value.
  int start() noexcept;
  void stop() noexcept;
  bool running() const noexcept { return running_; }

  /// Called when a thread of the program polls, and thereby makes progress.
  void polled() noexcept { polls_.fetch_add(1, std::memory_order_relaxed); }
  /// Called after a poll that copied this much data. Such a poll takes long, and stands for the
  /// polls that the program could have made in the meantime.
  void polled_long(std::uint64_t bytes) noexcept {
    constexpr std::uint64_t bytes_per_poll = 65'536;
    if (bytes >= bytes_per_poll)
      polls_.fetch_add(static_cast<std::uint32_t>(bytes / bytes_per_poll),
                       std::memory_order_relaxed);
  }

  /// Called when there is work. If the thread is working or on standby, it finds the work without
  /// being woken.
  void wake_if_asleep() noexcept {
    activity seen = activity::asleep;
    // The exchange ensures that the thread is woken only once for each sleep.
    if (doing_.load() == seen && doing_.compare_exchange_strong(seen, activity::working)) wake();
  }
  /// Called when there will be work at the time `when`. Requires the lock.
  void wake_if_asleep_at(nanoseconds when) noexcept {
    if (wakes_at_ == 0 || when < wakes_at_) wake_if_asleep();
  }
  /// Called when the program is about to stop polling.
  void wake_if_on_standby() noexcept {
    if (doing_.load() == activity::standby) wake();
  }

  /// Called in a forked child, in which the thread doesn't exist.
  void forget() noexcept;

 private:
  enum class activity : std::uint8_t { working, standby, asleep };

  static void* enter(void* self) noexcept;
  void run() noexcept;
  void wake() noexcept;
  /// True if the program polls often enough for this thread to rely on it.
  bool program_polls() noexcept;
  /// Checks for work that a polling program would find. If there is some, and the program doesn't
  /// poll soon, this thread stops relying on the program for a while.
  void notice_neglect() noexcept;
  /// Sleeps until the doorbell rings, the descriptor (unless negative) is readable, or the timeout
  /// in nanoseconds (unless negative) expires.
  void sleep(int extra_descriptor, nanoseconds timeout) noexcept;

  work& work_;
  pthread_t thread_{};
  int doorbell_ = -1;
  bool running_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<activity> doing_{activity::working};
  std::atomic<std::uint32_t> polls_{0};
  std::uint32_t polls_seen_ = 0;
  /// The time at which the thread wakes up even if no event occurs; 0 for never.
  nanoseconds wakes_at_ = 0;
  nanoseconds window_start_ = 0;
  bool busy_polled_ = false;
  nanoseconds neglected_until_ = 0;
};

}  // namespace softverbs
