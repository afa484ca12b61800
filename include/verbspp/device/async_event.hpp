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

/// What happened, apart from any request; the values are those of `ibv_event_type`, unknown ones
/// are kept.
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

/// The name; "unknown event" for a number that is none of them.
[[nodiscard]] const char* to_string(async_event_type type) noexcept;

/// What an asynchronous event is about.
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

/// What an asynchronous event asks of the program.
enum class async_event_severity : std::uint8_t {
  notice,   ///< something is as it should be, or was asked for
  warning,  ///< something changed: what was read before may be stale
  error,    ///< the element has failed; the rest of the device works
  fatal,    ///< the device has failed, and with it everything that was made on it
};

[[nodiscard]] const char* to_string(async_event_severity severity) noexcept;

namespace detail {

struct async_events;
class async_listener;

/// Counts what the order of matters: queues and the events that are about them.
[[nodiscard]] std::uint64_t moment_now() noexcept;

/// A queue pair of any type and state.
template <class Object>
concept NumberedQueuePair = requires(const Object& object) {
  { object.number() } -> std::convertible_to<queue_pair_number>;
  { object.native_handle() } -> std::same_as<ibv_qp*>;
};

}  // namespace detail

/// An asynchronous event of a device, from `context::poll_async_event` or `wait_async_event`.
///
/// A plain value: what it says was copied, and the event acknowledged, when it was taken. So
/// nothing has to be given back, and no object's destruction waits for it; an object may be gone
/// when its event is looked at.
class async_event {
 public:
  /// Copies an event that `ibv_get_async_event` gave and that is not acknowledged yet.
  [[nodiscard]] static async_event from_native(const ibv_async_event& native) noexcept;

  [[nodiscard]] async_event_type type() const noexcept {
    return static_cast<async_event_type>(type_);
  }
  [[nodiscard]] async_event_element element() const noexcept;
  [[nodiscard]] async_event_severity severity() const noexcept;
  /// What it means for the program, and what to do.
  [[nodiscard]] const char* hint() const noexcept;

  /// Of the queue pair that it is about.
  [[nodiscard]] std::optional<verbspp::queue_pair_number> queue_pair_number() const noexcept {
    if (element() != async_event_element::queue_pair) return std::nullopt;
    return verbspp::queue_pair_number::assume(static_cast<std::uint32_t>(id_));
  }
  /// The port that it is about.
  [[nodiscard]] std::optional<port_number> port() const noexcept;

  /// Whether it is about this queue pair: whether the numbers are equal. A device gives the number
  /// of a destroyed queue pair to another one at some time; so drop an old event with its queue
  /// pair.
  template <detail::NumberedQueuePair QueuePair>
  [[nodiscard]] bool concerns(const QueuePair& queue_pair) const noexcept {
    return queue_pair_number() == queue_pair.number();
  }
  /// Whether it is about this completion queue, or a copy of it; exact, even if the event's queue
  /// is gone and this one is at its address.
  [[nodiscard]] bool concerns(const completion_queue& queue) const noexcept;
  /// The same for a shared receive queue.
  [[nodiscard]] bool concerns(const shared_receive_queue& queue) const noexcept;
  /// The same for what was made without the library; only the addresses are compared.
  [[nodiscard]] bool concerns(const ibv_srq* queue) const noexcept {
    return element() == async_event_element::shared_receive_queue && is_at(queue);
  }
  [[nodiscard]] bool concerns(const ibv_wq* queue) const noexcept {
    return element() == async_event_element::work_queue && is_at(queue);
  }

  /// One line: what happened to what, and the hint.
  friend std::ostream& operator<<(std::ostream& out, const async_event& event);

 private:
  friend struct detail::async_events;
  friend class detail::async_listener;

  async_event() noexcept = default;
  [[nodiscard]] bool is_at(const void* address) const noexcept {
    return id_ == reinterpret_cast<std::uintptr_t>(address);
  }

  std::uint32_t type_ = 0;
  std::uint64_t id_ = 0;        // a number, or an address that is only compared
  std::uint64_t taken_at_ = 0;  // as moment_now counts
};

}  // namespace verbspp
