// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Wakes threads that sleep on file descriptors; a condition variable cannot wake such threads.
/// Each thread also watches the descriptor of this object. `wake_all` makes that descriptor
/// readable until all threads that were asleep at the time have woken up.
///
/// The owner's lock guards all members. A thread holds the lock from the time when it tests its
/// condition until it has called `enter`, so no signal is lost in between.
class wake_signal {
 public:
  wake_signal() noexcept = default;
  wake_signal(const wake_signal&) = delete;
  wake_signal& operator=(const wake_signal&) = delete;
  ~wake_signal();

  /// Registers this thread, which is about to sleep on `descriptor()`.
  /// \returns the value to pass to `leave`
  /// \errors `resource_exhausted` if no file descriptor or memory is left
  [[nodiscard]] result<std::uint64_t> enter() noexcept;
  void leave(std::uint64_t entered) noexcept;
  void wake_all() noexcept;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;  ///< an eventfd; -1 before the first sleep
  std::uint64_t signals_ = 0;
  unsigned sleepers_ = 0;
  unsigned behind_ = 0;  ///< the number of sleepers that have not woken up since the last signal
};

/// Creates a non-blocking eventfd that is closed on exec. Returns -1, and sets errno, if that
/// fails.
[[nodiscard]] int make_event_descriptor() noexcept;
/// Makes an eventfd readable, or not readable.
void raise(int event_descriptor) noexcept;
void lower(int event_descriptor) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
