// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>

#include <infiniband/verbs.h>

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <optional>

namespace verbspp {

class completion_queue;
class shared_receive_queue;

/// The types of asynchronous events, with the values of `ibv_event_type`. A value that is not in
/// this list is kept as a number.
enum class async_event_type : std::uint32_t {
  completion_queue_error = IBV_EVENT_CQ_ERR,
  queue_pair_fatal = IBV_EVENT_QP_FATAL,
  queue_pair_request_error = IBV_EVENT_QP_REQ_ERR,
  queue_pair_access_error = IBV_EVENT_QP_ACCESS_ERR,
  communication_established = IBV_EVENT_COMM_EST,
  send_queue_drained = IBV_EVENT_SQ_DRAINED,
  path_migrated = IBV_EVENT_PATH_MIG,
  path_migration_error = IBV_EVENT_PATH_MIG_ERR,
  device_fatal = IBV_EVENT_DEVICE_FATAL,
  port_active = IBV_EVENT_PORT_ACTIVE,
  port_error = IBV_EVENT_PORT_ERR,
  lid_change = IBV_EVENT_LID_CHANGE,
  pkey_change = IBV_EVENT_PKEY_CHANGE,
  subnet_manager_change = IBV_EVENT_SM_CHANGE,
  shared_receive_queue_error = IBV_EVENT_SRQ_ERR,
  shared_receive_queue_limit_reached = IBV_EVENT_SRQ_LIMIT_REACHED,
  last_work_request_reached = IBV_EVENT_QP_LAST_WQE_REACHED,
  client_reregister = IBV_EVENT_CLIENT_REREGISTER,
  gid_change = IBV_EVENT_GID_CHANGE,
  work_queue_fatal = IBV_EVENT_WQ_FATAL,
};

/// Returns the name of the event type, or "unknown event" for a value that is not in the list.
[[nodiscard]] const char* to_string(async_event_type type) noexcept;

/// The kinds of objects that asynchronous events are about.
enum class async_event_element : std::uint8_t {
  unknown,
  device,
  port,
  queue_pair,
  completion_queue,
  shared_receive_queue,
  work_queue,
};

[[nodiscard]] const char* to_string(async_event_element element) noexcept;

/// The severity of an asynchronous event.
enum class async_event_severity : std::uint8_t {
  notice,   ///< part of normal operation, or an event that the program requested
  warning,  ///< usually a change: attributes that were read earlier may be stale
  error,    ///< the element has failed; the rest of the device still works
  fatal,    ///< the device has failed, and all objects created on it
};

[[nodiscard]] const char* to_string(async_event_severity severity) noexcept;

namespace detail {

struct async_events;
class async_listener;

/// Returns the value of a process-wide counter, and then increments it. The library stores such a
/// value when it creates or adopts a queue and when it reads an event, so that it can tell which of
/// the two came first.
[[nodiscard]] std::uint64_t moment_now() noexcept;

/// A queue pair of any type and state.
template <class Object>
concept NumberedQueuePair = requires(const Object& object) {
  { object.number() } -> std::convertible_to<queue_pair_number>;
  { object.native_handle() } -> std::same_as<ibv_qp*>;
};

}  // namespace detail

/// An asynchronous event of a device, as returned by `context::poll_async_event` and
/// `wait_async_event`.
///
/// A plain value, so nothing has to be released: the library acknowledges the native event when it
/// has copied it. The object that the event is about can be destroyed at any time, and may no
/// longer exist.
class async_event {
 public:
  /// Copies an event that the program has read with `ibv_get_async_event`. Call this before
  /// `ibv_ack_async_event`, because the event may refer to an object that is destroyed after that.
  [[nodiscard]] static async_event from_native(const ibv_async_event& native) noexcept;

  [[nodiscard]] async_event_type type() const noexcept {
    return static_cast<async_event_type>(type_);
  }
  [[nodiscard]] async_event_element element() const noexcept;
  [[nodiscard]] async_event_severity severity() const noexcept;
  /// Explains what the event means for the program.
  [[nodiscard]] const char* hint() const noexcept;

  /// The number of the queue pair that the event is about; empty if it is not about a queue pair.
  [[nodiscard]] std::optional<verbspp::queue_pair_number> queue_pair_number() const noexcept {
    if (element() != async_event_element::queue_pair) return std::nullopt;
    return verbspp::queue_pair_number::assume(static_cast<std::uint32_t>(id_));
  }
  /// The port that the event is about; empty if it is not about a port.
  [[nodiscard]] std::optional<port_number> port() const noexcept;

  /// True if the event is about a queue pair with the same number. A device eventually reuses the
  /// number of a destroyed queue pair, so drop old events together with their queue pair.
  template <detail::NumberedQueuePair QueuePair>
  [[nodiscard]] bool concerns(const QueuePair& queue_pair) const noexcept {
    return queue_pair_number() == queue_pair.number();
  }
  /// True if the event is about this completion queue or a copy of it, and was read after the
  /// library created or adopted the queue. So an event about a queue that was destroyed does not
  /// match a newer queue at the same address.
  [[nodiscard]] bool concerns(const completion_queue& queue) const noexcept;
  /// True if the event is about this shared receive queue or a copy of it, and was read after the
  /// library created or adopted the queue.
  [[nodiscard]] bool concerns(const shared_receive_queue& queue) const noexcept;
  /// True if the event is about the object at this address. These overloads are for objects that
  /// were created without the library.
  [[nodiscard]] bool concerns(const ibv_srq* queue) const noexcept {
    return element() == async_event_element::shared_receive_queue && is_at(queue);
  }
  [[nodiscard]] bool concerns(const ibv_wq* queue) const noexcept {
    return element() == async_event_element::work_queue && is_at(queue);
  }

  /// Prints one line that contains the event, the number of the port or queue pair that it is
  /// about, if any, and the hint.
  friend std::ostream& operator<<(std::ostream& out, const async_event& event);

 private:
  friend struct detail::async_events;
  friend class detail::async_listener;

  async_event() noexcept = default;
  [[nodiscard]] bool is_at(const void* address) const noexcept {
    return id_ == reinterpret_cast<std::uintptr_t>(address);
  }

  std::uint32_t type_ = 0;
  std::uint64_t id_ = 0;        // the number or the address of the element
  std::uint64_t taken_at_ = 0;  // moment_now() when the event was read
};

}  // namespace verbspp
