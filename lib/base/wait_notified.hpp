// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/wait_limit.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// A sleep on a condition variable, which lasts until the condition holds or the limit expires. A
/// stop request runs a callback, `wake`, which takes the lock. So the lock is released whenever the
/// callback is being registered or removed. In between, only the condition variable releases the
/// lock, so the callback can't run between the thread's check for a stop and its sleep.
template <class Condition>
struct notified_sleep : stoppable_sleep {
  notified_sleep(std::condition_variable& changes, std::unique_lock<std::mutex>& lock,
                 const wait_limit& limit, Condition& condition) noexcept
      : stoppable_sleep{.wake =
                            [](stoppable_sleep& self) noexcept {
                              auto& mine = static_cast<notified_sleep&>(self);
                              const std::lock_guard guard(*mine.held.mutex());
                              mine.is_stopped = true;
                              mine.changed.notify_all();
                            }},
        changed(changes),
        held(lock),
        until(limit),
        holds(condition) {}

  void sleep_locked() noexcept {
    while (!holds() && !has_ended()) {
      // Sleeps for at most 100 ms at a time, because `wait_until` may convert the time to another
      // clock, and the conversion of the maximum would overflow.
      const auto slice = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      const auto end = until.has_callbacks() ? until.deadline() : until.sleep_until();
      changed.wait_until(held, std::min(end, slice));
    }
  }

  [[nodiscard]] bool has_ended() const noexcept {
    if (!until.has_callbacks()) return until.has_passed();
    return is_stopped || std::chrono::steady_clock::now() >= until.deadline();
  }

  std::condition_variable& changed;
  std::unique_lock<std::mutex>& held;
  const wait_limit& until;
  Condition& holds;
  bool is_stopped = false;  ///< guarded by the lock
};

/// Waits until `holds()` is true. Other threads notify `changed` when the value of `holds()` may
/// have changed. The lock is held on entry and return, and released during the sleep.
/// \returns false if the limit expired first
template <class Condition>
[[nodiscard]] bool wait_notified(std::condition_variable& changed,
                                 std::unique_lock<std::mutex>& held, const wait_limit& until,
                                 Condition holds) noexcept {
  if (holds()) return true;
  if (until.has_passed()) return false;
  notified_sleep<Condition> asleep(changed, held, until, holds);
  if (until.has_callbacks()) {
    held.unlock();
    stop_registration stopping;
    until.watch(stopping, asleep);
    held.lock();
    asleep.sleep_locked();
    held.unlock();
    stopping.end();
    held.lock();
  } else {
    asleep.sleep_locked();
  }
  return holds();
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
