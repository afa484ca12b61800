// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/stop_callback.hpp>
#include <verbspp/base/wait_limit.hpp>

namespace verbspp::detail {

/// A limit, and the registration of a callback with its stop token.
class stoppable_limit {
 public:
  explicit stoppable_limit(const wait_limit& until) noexcept : until_(until) {}

  [[nodiscard]] const wait_limit& until() const noexcept { return until_; }
  /// From now on, a stop request calls `asleep.wake`. A no-op if the token has to be polled.
  void begin(stoppable_sleep& asleep) noexcept {
    if (until_.has_callbacks() && !stopping_.is_active()) until_.watch(stopping_, asleep);
  }
  /// Removes the callback. If it runs on another thread, waits until it has returned.
  void end() noexcept { stopping_.end(); }
  [[nodiscard]] bool is_active() const noexcept { return stopping_.is_active(); }
  /// The time at which the limit has to be checked if no stop request wakes the sleeper earlier.
  [[nodiscard]] wait_limit::time_point alarm() const noexcept {
    return is_active() ? until_.deadline() : until_.sleep_until();
  }

 private:
  wait_limit until_;
  stop_registration stopping_{};
};

/// An eventfd that stop requests make readable.
class stop_signal : stoppable_sleep {
 public:
  stop_signal() noexcept;
  stop_signal(const stop_signal&) = delete;
  stop_signal& operator=(const stop_signal&) = delete;
  ~stop_signal();

  /// The eventfd; -1 until `watch` has created it.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// Lets a stop request make the eventfd readable, unless the token has to be polled.
  void watch(stoppable_limit& limit) noexcept;

 private:
  int descriptor_ = -1;
};

/// The descriptor that a session has for event loops. Usually, this is the session's own
/// descriptor. If a callback could be registered with the limit's stop token, it is a second
/// descriptor, which is readable when the session's own descriptor is ready or a stop was
/// requested.
class session_descriptor {
 public:
  /// Returns the second descriptor if a stop request can make it readable; otherwise the session's
  /// own descriptor.
  [[nodiscard]] int get(int own, short events, const wait_limit& limit) noexcept;
  /// Changes the events of the session's own descriptor.
  void set_events(short events) noexcept;
  /// True if `get` has returned the second descriptor instead of the session's own.
  [[nodiscard]] bool is_made() const noexcept { return static_cast<bool>(made_); }
  [[nodiscard]] wait_limit::time_point alarm(const wait_limit& limit) const noexcept {
    return made_ ? limit.deadline() : limit.sleep_until();
  }

 private:
  struct parts {
    parts(int of_session, short events_of_session, const wait_limit& limit) noexcept;
    parts(const parts&) = delete;
    parts& operator=(const parts&) = delete;
    ~parts();

    int own;
    short events;
    int set = -1;  ///< the epoll instance of both descriptors
    stop_signal signal{};
    stoppable_limit until;
  };

  owned<parts> made_{};
  bool was_asked_ = false;
};

}  // namespace verbspp::detail
