// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "queue/watched_descriptors.hpp"
#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel_id.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The events of a hub other than completions: another thread has called `wake`, or a descriptor
/// that a channel watches has ended. One epoll descriptor is readable for all of them.
class hub_events {
 public:
  hub_events() noexcept = default;
  hub_events(const hub_events&) = delete;
  hub_events& operator=(const hub_events&) = delete;
  ~hub_events();

  [[nodiscard]] result<void> open() noexcept;
  [[nodiscard]] int descriptor() const noexcept { return events_; }
  /// True if any descriptor was ever watched.
  [[nodiscard]] bool is_watching() const noexcept {
    return __atomic_load_n(&is_watching_, __ATOMIC_RELAXED);
  }

  /// Thread-safe.
  void wake() noexcept;

  /// Watches for the first event of the descriptor. Does nothing for one below 0.
  void watch(const watched_descriptor& watched, channel_id of) noexcept;
  void stop_watching(int descriptor) noexcept;
  /// Calls `take` with the index and the generation of each channel whose descriptor has ended.
  template <class Take>
  void take(Take take) noexcept {
    channel_id ended[16];
    for (std::uint32_t i = 0, count = read(ended); i < count; ++i)
      take(ended[i].index, ended[i].generation);
  }

 private:
  [[nodiscard]] std::uint32_t read(channel_id (&ended)[16]) noexcept;

  int events_ = -1;
  int woken_ = -1;
  bool is_watching_ = false;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
