// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>

namespace verbspp {

namespace detail {
class looking;  // declared here, so that public headers can name this class of the sources
}  // namespace detail

/// The way in which a channel waits for its requests: by polling, which has the lowest latency and
/// occupies a processor; by sleeping until the device reports a completion; or by polling for some
/// time and then sleeping.
///
///     domain.build_channel().waiting(wait_mode::spin_then_sleep(20us))
///
/// A sleeping channel is woken by its completions, by the limit of the wait, and by failures of its
/// queues, its port or the device (asynchronous events, which the program still receives). The
/// descriptors that are passed to `channel::watch` and `channel::wait`, and the socket to which the
/// channel is tied, wake it, too.
class wait_mode {
 public:
  /// Polls until the wait ends; the default.
  [[nodiscard]] static constexpr wait_mode spin() noexcept {
    return wait_mode((std::chrono::nanoseconds::max)());
  }
  [[nodiscard]] static constexpr wait_mode sleep() noexcept {
    return wait_mode(std::chrono::nanoseconds::zero());
  }
  /// Polls for `length`, and then sleeps. A good length is about the time that it takes to go to
  /// sleep and wake up, a few microseconds. With this length, the cost is at most twice that of
  /// whichever mode would have been better.
  [[nodiscard]] static constexpr wait_mode spin_then_sleep(
      std::chrono::nanoseconds length) noexcept {
    return wait_mode(length);
  }

  /// The time for which a channel polls before it sleeps; the largest duration if it never sleeps.
  [[nodiscard]] constexpr std::chrono::nanoseconds spins_for() const noexcept { return spins_for_; }
  [[nodiscard]] constexpr bool sleeps() const noexcept {
    return spins_for_ != (std::chrono::nanoseconds::max)();
  }

  friend constexpr bool operator==(const wait_mode&, const wait_mode&) noexcept = default;

 private:
  constexpr explicit wait_mode(std::chrono::nanoseconds length) noexcept : spins_for_(length) {}

  std::chrono::nanoseconds spins_for_;
};

}  // namespace verbspp
