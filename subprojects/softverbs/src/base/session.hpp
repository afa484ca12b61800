// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace softverbs {

/// A session that only one thread at a time can hold, from its call of `begin` to its call of
/// `end`. Other threads wait in `begin`. If the thread that holds the session calls `begin` again,
/// the call fails, because the thread would otherwise wait for itself forever.
class session {
 public:
  /// If `alone` is true, the program has promised to use one thread at a time, so no lock is taken.
  explicit session(bool alone) noexcept : alone_(alone) {}
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  /// True if the calling thread holds the session.
  bool is_own() const noexcept {
    return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  /// Returns false if the calling thread already holds the session.
  [[nodiscard]] bool begin() {
    if (is_own()) return false;
    if (!alone_) mutex_.lock();
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void end() noexcept {
    holder_.store({}, std::memory_order_relaxed);
    if (!alone_) mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};
  const bool alone_;
};

/// Begins a session, if the pointer isn't null, and ends it when this object is destroyed, unless
/// `refused`.
class session_guard {
 public:
  explicit session_guard(session* within) : within_(within), refused_(within && !within->begin()) {}
  session_guard(const session_guard&) = delete;
  session_guard& operator=(const session_guard&) = delete;
  ~session_guard() {
    if (within_ != nullptr && !refused_) within_->end();
  }

  /// True if the calling thread already held the session.
  bool refused() const noexcept { return refused_; }

 private:
  session* within_;
  bool refused_;
};

}  // namespace softverbs
