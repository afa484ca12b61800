// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/single_threaded.hpp>

#include <cstdint>

namespace verbspp::detail {

/// A mutex for critical sections that usually last at most a few microseconds. As long as the
/// process is known to have only one thread, the mutex uses no atomic operations.
///
/// A thread that finds the mutex locked spins for a moment and then sleeps.
class brief_lock {
 public:
  brief_lock() noexcept = default;
  brief_lock(const brief_lock&) = delete;
  brief_lock& operator=(const brief_lock&) = delete;
  ~brief_lock() = default;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_later();
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (is_single_threaded()) return true;
    std::uint32_t expected = unlocked;
    return __atomic_compare_exchange_n(&state_, &expected, locked, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
  }
  // If the process had one thread when it called `lock`, that call changed nothing, and the state
  // is still `unlocked`: no thread may be started while the lock is held.
  void unlock() noexcept {
    if (__atomic_load_n(&state_, __ATOMIC_RELAXED) == unlocked) return;
    if (__atomic_exchange_n(&state_, unlocked, __ATOMIC_RELEASE) == has_sleepers) [[unlikely]]
      wake();
  }

 private:
  static constexpr std::uint32_t unlocked = 0;
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t has_sleepers = 2;  ///< locked, and other threads may be asleep

  void lock_later() noexcept;
  void wake() noexcept;

  std::uint32_t state_ = unlocked;
};

/// Holds the lock until the end of the block.
class brief_guard {
 public:
  explicit brief_guard(brief_lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  brief_guard(const brief_guard&) = delete;
  brief_guard& operator=(const brief_guard&) = delete;
  ~brief_guard() { lock_.unlock(); }

 private:
  brief_lock& lock_;
};

}  // namespace verbspp::detail
