// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>

namespace softverbs {

/// A mutex that a thread polling in a tight loop can't monopolize, because `try_lock` fails while
/// any thread waits in `lock`.
class fair_mutex {
 public:
  void lock() noexcept {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool try_lock() noexcept {
    return waiting_.load(std::memory_order_relaxed) == 0 && mutex_.try_lock();
  }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace softverbs
