// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>

namespace verbspp {

/// How a channel waits for its work: by looking again and again, which sees it soonest and keeps a
/// processor busy, by sleeping until the device has something to tell, or by looking for some time
/// and then sleeping.
///
///     domain.build_channel().waiting(wait_mode::spin_then_sleep(20us))
///
/// A channel that sleeps is woken by its completions, and by what fails meanwhile: its queues, its
/// port, the device (asynchronous events, which the program still gets), a descriptor of the
/// program's (`channel::watch`).
class wait_mode {
 public:
  /// For as long as it takes; the default.
  [[nodiscard]] static constexpr wait_mode spin() noexcept {
    return wait_mode((std::chrono::nanoseconds::max)());
  }
  [[nodiscard]] static constexpr wait_mode sleep() noexcept {
    return wait_mode(std::chrono::nanoseconds::zero());
  }
  /// About as long as a sleep and its end take, a few microseconds, is a good length: it costs at
  /// most twice what the better one of the two would.
  [[nodiscard]] static constexpr wait_mode spin_then_sleep(
      std::chrono::nanoseconds length) noexcept {
    return wait_mode(length);
  }

  /// How long it spins; the largest duration if for ever.
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
