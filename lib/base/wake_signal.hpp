// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Wakes threads that sleep on file descriptors, where a condition variable could not: each watches
/// this one's as well. Readable until every thread that slept when it was given has woken up.
///
/// The owner's lock guards all of it; a thread holds it from where it looked at what it waits for
/// until it has entered, so no signal falls between.
class wake_signal {
 public:
  wake_signal() noexcept = default;
  wake_signal(const wake_signal&) = delete;
  wake_signal& operator=(const wake_signal&) = delete;
  ~wake_signal();

  /// This thread is about to sleep on `descriptor()`.
  /// \returns what it has to leave with
  /// \errors `resource_exhausted` for file descriptors
  [[nodiscard]] result<std::uint64_t> enter() noexcept;
  void leave(std::uint64_t entered) noexcept;
  void wake_all() noexcept;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;  ///< an eventfd, from the first sleep on
  std::uint64_t signals_ = 0;
  unsigned sleepers_ = 0;
  unsigned behind_ = 0;  ///< of these, whom the last signal has yet to wake
};

/// An eventfd, closed on exec and non-blocking; -1 and errno if there is none.
[[nodiscard]] int make_event_descriptor() noexcept;
/// Makes it readable, or not.
void raise(int event_descriptor) noexcept;
void lower(int event_descriptor) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
