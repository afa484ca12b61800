// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <utility>

namespace softverbs::shim {

/// A file descriptor, closed at the end.
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

/// What a program waits at instead of a device's descriptor: it is readable if that one is, and
/// when there is something else to tell. No thread is needed for it, so there is none to lose in a
/// fork.
class bell {
 public:
  /// False with errno set. The device's descriptor doesn't block from here on, and stays whose it
  /// is. `clock` is readable when a fault is due that waits for a time.
  bool open(int device, int clock) noexcept;
  int get() const noexcept { return all_.get(); }
  int device() const noexcept { return device_; }

  /// Readable until told otherwise.
  void ring(bool on) noexcept;
  /// Readable from then on; 0 for never.
  void ring_at(nanoseconds time) noexcept;

  bool device_is_readable() const noexcept;
  /// Waits until it is readable. False with errno set, to EAGAIN if the program doesn't want to
  /// wait.
  bool wait() const noexcept;

 private:
  int device_ = -1;
  descriptor all_;
  descriptor rung_;
  descriptor timer_;
};

/// A timer that is readable from a time on.
descriptor make_timer() noexcept;
void set_timer(int timer, nanoseconds time) noexcept;

}  // namespace softverbs::shim
