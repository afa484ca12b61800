// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace softverbs {

/// Events that wait behind a file descriptor, as behind the kernel's completion
/// channels: readable while there are events, and whoever reads it blocks or not
/// as the program set it. Has a lock of its own, under which it calls nothing else;
/// reading the descriptor takes a token for one event, without that lock.
template <typename Event>
class event_queue {
 public:
  event_queue() noexcept = default;
  event_queue(const event_queue&) = delete;
  event_queue& operator=(const event_queue&) = delete;
  ~event_queue() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool open() noexcept {
    descriptor_ = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return descriptor_ >= 0;
  }
  int descriptor() const noexcept { return descriptor_; }

  void push(const Event& event) {
    const std::lock_guard held(lock_);
    events_.push_back(event);
    put_token();
  }

  /// Waits for a token; false with errno when there is none. Another thread may
  /// have dropped the event meanwhile: then `pop` finds nothing, and the caller
  /// waits again.
  bool take_token() const noexcept {
    std::uint64_t token = 0;
    return ::read(descriptor_, &token, sizeof(token)) == sizeof(token);
  }

  /// Wakes all who wait, now and later, with an event or without, until `calm`. They have to look
  /// why, and to hand on the token that they took by `wake_next`.
  void wake() {
    const std::lock_guard held(lock_);
    if (!std::exchange(woken_, true)) put_token();
  }
  void wake_next() { put_token(); }
  void calm() {
    const std::lock_guard held(lock_);
    if (std::exchange(woken_, false)) take_token_if_any();
  }

  bool pop(Event& event) {
    const std::lock_guard held(lock_);
    if (events_.empty()) return false;
    event = events_.front();
    events_.pop_front();
    return true;
  }

  /// Drops the events that `dead` says yes to, with their tokens.
  template <typename Predicate>
  void drop(Predicate dead) {
    const std::lock_guard held(lock_);
    for (auto event = events_.begin(); event != events_.end();) {
      if (!dead(*event)) {
        ++event;
        continue;
      }
      event = events_.erase(event);
      take_token_if_any();
    }
  }

 private:
  void put_token() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof(one));
  }
  void take_token_if_any() const noexcept {
    std::uint64_t token = 0;
    iovec into{&token, sizeof(token)};
    if (::preadv2(descriptor_, &into, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
    // A kernel that can't read this descriptor without waiting. Between the check
    // and the read another reader may take the token, but it gives the lock that
    // we hold no chance to add one less event.
    pollfd readable{descriptor_, POLLIN, 0};
    if (::poll(&readable, 1, 0) == 1) [[maybe_unused]]
      const ssize_t taken = ::read(descriptor_, &token, sizeof(token));
  }

  std::mutex lock_;
  std::deque<Event> events_;
  bool woken_ = false;
  int descriptor_ = -1;
};

}  // namespace softverbs
