// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace verbspp::detail {

/// What a listener hears of, besides the device; null and 0 stand for nothing.
struct async_elements {
  const ibv_qp* queue_pair = nullptr;
  const ibv_cq* completion_queue = nullptr;
  const ibv_srq* shared_receive_queue = nullptr;
  unsigned port = 0;
};

/// Hears of the failures that a device tells by asynchronous events, without taking the events from
/// the program: whoever reads one from the device, a `context::poll_async_event` of the program's
/// or a wait that watches with a listener, tells all listeners that it concerns.
///
/// It notes the gravest, of equal ones the first: the device's failure is graver than that of a
/// queue, and this than that of a port, which is forgotten when the port is active again. Events
/// that are not errors are not noted.
///
/// Keeps the context alive. Thread rule: `listen`, `stop` and the destructor as a plain object, the
/// others at any time on any thread. Stop it before the elements are destroyed.
class async_listener {
 public:
  async_listener() noexcept;
  async_listener(const async_listener&) = delete;
  async_listener& operator=(const async_listener&) = delete;
  ~async_listener();

  /// Begins to hear of these, and forgets what it has heard before. Of what happened earlier it
  /// only hears whether the device has failed.
  /// \pre the context was not moved from
  void listen(const context& source, const async_elements& about) noexcept;
  /// Hears of one more port from now on. On any thread while it listens.
  void hear_port(unsigned port) noexcept;
  /// Hears no more; what was heard stays.
  void stop() noexcept;

  /// Whether there is something in `heard`: one load.
  [[nodiscard]] bool has_heard() const noexcept {
    return __atomic_load_n(&has_heard_, __ATOMIC_ACQUIRE);
  }
  [[nodiscard]] std::optional<async_event> heard() const noexcept;
  /// Reads the events that are there, if that can't block, and keeps them for the program, until
  /// something was heard or the limit has passed: for who wants to know why something failed, and
  /// has not slept with the listener. A failure is seen before its event is there, at times. Needs
  /// to listen.
  /// \errors `driver` if the device is gone; `resource_exhausted` for file descriptors
  [[nodiscard]] result<void> look(
      const wait_limit& until = (wait_limit::time_point::min)()) noexcept;

 private:
  friend struct async_events;

  [[nodiscard]] bool is_about(const async_event& event,
                              const ibv_async_event& native) const noexcept;
  void note_port(unsigned port) noexcept;
  [[nodiscard]] bool hears_port(unsigned port) const noexcept;
  void set(const async_event& heard) noexcept;
  void forget() noexcept;

  reference<context_state> source_;  ///< null while it does not listen
  async_elements about_;
  std::uint64_t ports_[4] = {};  ///< a bit for each; the lock of the context's events guards them
  async_listener* previous_ = nullptr;
  async_listener* next_ = nullptr;
  bool has_heard_ = false;
  async_event heard_;  ///< if it has; an optional one would cost whoever includes this
};

}  // namespace verbspp::detail
