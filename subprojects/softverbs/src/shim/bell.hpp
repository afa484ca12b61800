// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <utility>

namespace softverbs::shim {

/// Owns a file descriptor.
class descriptor {
 public:
  descriptor() noexcept = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor();

  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// The descriptor on which a program waits instead of the device's own descriptor. It is readable
/// when the device's descriptor is, and when this library may have something to report. It needs no
/// thread, which a forked child would not have.
class bell {
 public:
  /// Opens the descriptor. Makes the device's descriptor non-blocking, but does not own it. `clock`
  /// is readable when a fault with a time is due. Returns false with errno set on failure.
  bool open(int device, int clock) noexcept;
  int get() const noexcept { return all_.get(); }
  int device() const noexcept { return device_; }

  /// Makes the descriptor readable until `ring(false)`.
  void ring(bool on) noexcept;
  /// Makes the descriptor readable when `time` is reached. A time of 0 means never.
  void ring_at(nanoseconds time) noexcept;

  bool device_is_readable() const noexcept;
  /// Waits until the descriptor is readable. Returns false with errno set on failure; errno is
  /// EAGAIN if the program has made the descriptor non-blocking.
  bool wait() const noexcept;

 private:
  int device_ = -1;
  descriptor all_;
  descriptor rung_;
  descriptor timer_;
};

/// Creates a timer, whose descriptor becomes readable at the time that `set_timer` sets.
descriptor make_timer() noexcept;
void set_timer(int timer, nanoseconds time) noexcept;

}  // namespace softverbs::shim
