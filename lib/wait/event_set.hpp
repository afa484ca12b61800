// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/wake_signal.hpp"
#include <verbspp/base/result.hpp>

#include <sys/epoll.h>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// A set of descriptors with tags, and a signal. Its epoll descriptor is readable while a
/// descriptor in the set has an event to report, or the signal is raised. Thread-safe once the set
/// is open.
class event_set {
 public:
  event_set() noexcept = default;
  event_set(const event_set&) = delete;
  event_set& operator=(const event_set&) = delete;
  ~event_set() { close(); }

  [[nodiscard]] result<void> open(const char* operation) noexcept;
  [[nodiscard]] bool is_open() const noexcept { return events_ >= 0; }
  /// The epoll descriptor; -1 if the set is not open.
  [[nodiscard]] int descriptor() const noexcept { return events_; }
  /// The eventfd that `wake` makes readable.
  [[nodiscard]] int signal() const noexcept { return signal_; }
  /// Makes the epoll descriptor readable until `take` clears the signal.
  void wake() const noexcept { raise(signal_); }

  /// Adds a descriptor. \param tag must not be 0, which is the tag of the signal
  /// \returns 0, or the errno
  [[nodiscard]] int add(int descriptor, std::uint32_t events, std::uint64_t tag) noexcept;
  /// Removes a descriptor. A no-op if the descriptor is negative.
  void remove(int descriptor) noexcept;
  /// Calls `take` with the tag and the events of up to 16 ready descriptors. If the signal is one
  /// of them, clears it instead.
  template <class Take>
  void take(Take take) noexcept {
    epoll_event ready[16];
    const int filled = ::epoll_wait(events_, ready, 16, 0);
    for (int i = 0; i < filled; ++i) {
      if (ready[i].data.u64 == of_signal)
        lower(signal_);
      else
        take(std::uint64_t{ready[i].data.u64}, std::uint32_t{ready[i].events});
    }
  }

 private:
  static constexpr std::uint64_t of_signal = 0;
  void close() noexcept;

  int events_ = -1;
  int signal_ = -1;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
