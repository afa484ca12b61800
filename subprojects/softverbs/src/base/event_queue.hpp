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

/// A queue of events with a file descriptor, like one of the kernel's completion channels. The
/// descriptor is an eventfd, to which `push` adds a token for each event. A read takes one token,
/// without a lock. Whether it blocks depends on the flags of the descriptor, which the program
/// sets. The queue's own lock protects the events.
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

  /// Takes a token, and waits for one unless the descriptor is nonblocking. Returns false with
  /// errno if no token was taken. Another thread may drop the event after its token was taken. If
  /// `pop` returns false for this reason, the caller has to wait again.
  bool take_token() const noexcept {
    std::uint64_t token = 0;
    return ::read(descriptor_, &token, sizeof(token)) == sizeof(token);
  }

  /// Wakes all threads that wait now or begin to wait before `calm` is called, even if there is no
  /// event. A woken thread has to check why it was woken, and to wake the next thread by passing
  /// its token on with `wake_next`.
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

  /// Drops the events for which `dead` returns true, and takes a token for each, if one is left.
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
    // This kernel doesn't support RWF_NOWAIT on an eventfd. The read below may therefore block, if
    // another thread takes the token between the poll and the read.
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
