// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <bitset>
#include <cstdint>
#include <optional>

namespace verbspp::detail {

/// The objects that a listener watches in addition to the device. Null and 0 mean that there is no
/// such object.
struct async_elements {
  const ibv_qp* queue_pair = nullptr;
  const ibv_cq* completion_queue = nullptr;
  const ibv_srq* shared_receive_queue = nullptr;
  unsigned port = 0;
};

/// Receives the failures that a device reports through asynchronous events, without hiding the
/// events from the program. A thread that reads an event through the library, for example in
/// `context::poll_async_event` or in a wait that uses a listener, passes the event to all listeners
/// that watch its element.
///
/// The listener stores one failure: the most severe one, or the first of equally severe ones. A
/// failure of the device is more severe than a failure of a queue or queue pair, which is more
/// severe than a failure of a port. A port's failure is forgotten when the port is active again; if
/// another port is down, its failure is then stored. Other events that are not errors are ignored.
///
/// While it is listening, a listener keeps the context alive. Thread rule: `listen`, `stop` and the
/// destructor need exclusive access; the other members may be called on any thread. Call `stop`
/// before the elements are destroyed.
class async_listener {
 public:
  async_listener() noexcept;
  async_listener(const async_listener&) = delete;
  async_listener& operator=(const async_listener&) = delete;
  ~async_listener();

  /// Starts to listen for failures of these elements, and forgets the stored failure. If a failure
  /// of the device was read before this call, it is stored immediately. Other events that were read
  /// before this call are not reported.
  /// \pre the context was not moved from
  void listen(const context& source, const async_elements& about) noexcept;
  /// Adds a port to watch. This may be called on any thread while the listener is listening.
  void hear_port(unsigned port) noexcept;
  /// Sets the eventfd that becomes readable whenever a failure is stored from now on. A negative
  /// number removes it.
  void wake_by(int event_descriptor) noexcept;
  /// Stops listening. The stored failure remains.
  void stop() noexcept;

  /// True if `heard` returns a failure. This call costs only one load.
  [[nodiscard]] bool has_heard() const noexcept {
    return __atomic_load_n(&has_heard_, __ATOMIC_ACQUIRE);
  }
  /// The number of failures that have been stored since the listener was created.
  [[nodiscard]] std::uint32_t times_heard() const noexcept {
    return __atomic_load_n(&times_heard_, __ATOMIC_ACQUIRE);
  }
  [[nodiscard]] std::optional<async_event> heard() const noexcept;
  /// Reads events as they become available, and keeps them for the program, until a failure is
  /// stored or the limit is reached. Does not read events if reading could block. Callers that have
  /// noticed a failure by other means use this function to find its cause, because the consequences
  /// of a failure may become visible before the event that reports it.
  /// \pre the listener is listening
  /// \errors `driver` if the device no longer exists; `resource_exhausted` if no file descriptor is
  /// left
  [[nodiscard]] result<void> look(
      const wait_limit& until = (wait_limit::time_point::min)()) noexcept;

 private:
  friend struct async_events;

  [[nodiscard]] bool is_about(const async_event& event,
                              const ibv_async_event& native) const noexcept;
  /// Handles an event about one of the listener's elements.
  void hear(const async_event& event) noexcept;
  void set(const async_event& heard) noexcept;
  void forget() noexcept;

  reference<context_state> source_;  ///< null while not listening
  async_elements about_;
  // The lock of the context's events guards the next three members.
  std::bitset<256> ports_{};  ///< the ports to watch
  std::bitset<256> down_{};   ///< the ports whose last event was a failure
  int woken_ = -1;            ///< an eventfd
  async_listener* previous_ = nullptr;
  async_listener* next_ = nullptr;
  std::uint32_t times_heard_ = 0;
  bool has_heard_ = false;
  async_event heard_;  ///< valid only if has_heard_ is true
};

}  // namespace verbspp::detail
