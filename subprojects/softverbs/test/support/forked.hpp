// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <concepts>

// If a program has several threads, ThreadSanitizer supports no threads in its children.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK
#endif
#elif defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK
#endif

/// A child process, which has a copy of the test's objects.
class forked {
 public:
  /// \param body the code that the child runs; returns true if it succeeds
  template <std::predicate Body>
  explicit forked(Body body) : process_(::fork()) {
    REQUIRE(process_ >= 0);
    if (process_ != 0) return;
    bool went_well = false;
    try {
      went_well = body();
    } catch (...) {  // an exception counts as a failure
    }
    ::_exit(went_well ? 0 : 1);
  }

  /// Waits until the child exits. Returns true if it succeeded.
  [[nodiscard]] bool ended_well() const {
    int status = -1;
    return ::waitpid(process_, &status, 0) == process_ && status == 0;
  }

 private:
  const pid_t process_;
};
