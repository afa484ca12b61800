// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/wait/continuation.hpp>

namespace verbspp::detail {

/// Calls that other threads hand over to the thread that polls. Thread-safe.
class handed_calls {
 public:
  handed_calls() noexcept = default;
  handed_calls(const handed_calls&) = delete;
  handed_calls& operator=(const handed_calls&) = delete;
  ~handed_calls() = default;

  /// Adds a call, whose object has to exist until the call has been made or withdrawn. The caller
  /// of `push` then has to wake the thread that polls. \pre the call is in no list
  void push(continuation& call) noexcept;
  /// Removes a call, unless it was already made.
  void withdraw(continuation& call) noexcept;
  /// True if `run` has something to do.
  [[nodiscard]] bool has_some() const noexcept {
    return __atomic_load_n(&has_some_, __ATOMIC_SEQ_CST);
  }
  /// Makes all calls that were added before this function was called. Calls that are added while it
  /// is running wait until it is called again.
  void run() noexcept;

 private:
  brief_lock lock_{};
  continuation_list due_{};
  bool has_some_ = false;
};

}  // namespace verbspp::detail
