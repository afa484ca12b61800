// SPDX-License-Identifier: Apache-2.0
#include "base/pause.hpp"
#include <verbspp/base/detail/brief_lock.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace verbspp::detail {

namespace {

/// A thread that finds the lock taken reads it this many times before it sleeps. Usually, the owner
/// releases the lock in the meantime.
constexpr unsigned looks_before_sleep = 100;

}  // namespace

void brief_lock::lock_later() noexcept {
  for (unsigned look = 0; look < looks_before_sleep; ++look) {
    // Reads the lock first, because a failed attempt to take it would move its cache line away from
    // the owner.
    if (__atomic_load_n(&state_, __ATOMIC_RELAXED) == unlocked && try_lock()) return;
    pause_processor();
  }
  const int errnum = errno;  // the callers may be destructors, which must not change errno
  while (__atomic_exchange_n(&state_, has_sleepers, __ATOMIC_ACQUIRE) != unlocked)
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, has_sleepers, nullptr, nullptr, 0);
  errno = errnum;
}

void brief_lock::wake() noexcept {
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace verbspp::detail
