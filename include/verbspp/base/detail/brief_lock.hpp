// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/single_threaded.hpp>

namespace verbspp::detail {

/// A lock for a few instructions that call nothing. While the process has one thread, taking it
/// takes no atomic operation.
///
/// Whoever finds it taken tries again, and soon lets others have the processor: its owner may need
/// that one.
class brief_lock {
 public:
  brief_lock() noexcept = default;
  brief_lock(const brief_lock&) = delete;
  brief_lock& operator=(const brief_lock&) = delete;
  ~brief_lock() = default;

  void lock() noexcept {
    if (is_single_threaded()) return;
    if (__atomic_exchange_n(&taken_, true, __ATOMIC_ACQUIRE)) [[unlikely]]
      lock_later();
  }
  // Also where no lock was taken: who took it may have been one of several threads then.
  void unlock() noexcept { __atomic_store_n(&taken_, false, __ATOMIC_RELEASE); }

 private:
  void lock_later() noexcept;

  bool taken_ = false;
};

/// Has the lock from here to the end of the block.
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
