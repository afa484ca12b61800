// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_event.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>
#include <verbspp/cm/private_data.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp {

/// The state of a connection, as determined by `disconnect` and by the events that have been read.
enum class cm_state : std::uint8_t {
  empty,  ///< default constructed or moved from
  connected,
  disconnected,  ///< ended by either end; packets may still be in flight (time-wait)
  over,          ///< time-wait has ended
  removed,       ///< the device was removed
};

/// The name of the state, such as "connected".
[[nodiscard]] const char* to_string(cm_state state) noexcept;

/// The connection manager's part of a connection. It ends the connection, and reports when the peer
/// has ended it.
///
/// The queue pair or channel is a separate object, and may be destroyed before or after this one.
/// The destructor notifies the peer that the connection has ended. A move-only owner. Thread rule:
/// as for a standard container, but another thread may wait for the descriptor.
class cm_connection {
 public:
  cm_connection() noexcept = default;
  cm_connection(cm_connection&& other) noexcept
      : id_(std::move(other.id_)),
        theirs_(other.theirs_),
        state_(std::exchange(other.state_, cm_state::empty)) {}
  cm_connection& operator=(cm_connection&& other) noexcept {
    id_ = std::move(other.id_);
    theirs_ = other.theirs_;
    state_ = std::exchange(other.state_, cm_state::empty);
    return *this;
  }
  ~cm_connection() = default;
  /// Used by the library only.
  cm_connection(detail::cm_identifier id, const cm_acceptance_data& theirs) noexcept
      : id_(std::move(id)), theirs_(theirs), state_(cm_state::connected) {}

  /// Notifies the peer that the connection ends (`rdma_disconnect`). Call it when everything has
  /// been sent. The call succeeds even if the peer has already ended the connection.
  /// \errors `not_connected` if this is empty; `not_found` if the device was removed
  result<void> disconnect() noexcept;
  /// Waits until either end has ended the connection. If the peer has ended it, this call
  /// acknowledges that to the peer.
  /// \errors `timed_out`, `cancelled` when the limit is reached; the connection is then unchanged.
  /// `not_found` if the device was removed; as `poll`
  [[nodiscard]] result<void> wait_for_end(const wait_limit& limit) noexcept;

  /// Returns the next event, or nothing if none is available; never blocks. On a `disconnected`
  /// event, this function also acknowledges to the peer that the connection has ended.
  /// \errors `not_connected` if this is empty; `driver` if the kernel's connection manager no
  /// longer exists; `resource_exhausted`
  [[nodiscard]] result<std::optional<cm_event>> poll() noexcept;
  /// Waits for the next event. Returns nothing if none arrives within the limit.
  /// \errors as `poll`
  [[nodiscard]] result<std::optional<cm_event>> wait_event(const wait_limit& limit) noexcept;
  /// The descriptor for epoll and poll, which is readable when an event is available; -1 if this is
  /// empty. The first event reports that the connection has ended, unless the device is removed
  /// (`device_removal`), the address moves to another device (`address_change`), or the peer's
  /// address does (`unreachable`) first. A channel that `watch`es this descriptor therefore does
  /// not wait for a peer that has left.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  [[nodiscard]] result<bool> request_notification() noexcept { return false; }
  /// Returns the maximum time point, because an event loop needs no timeout for this object.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }

  /// The state after the last event that was read, or after `disconnect`.
  [[nodiscard]] cm_state state() const noexcept { return state_; }
  /// The private data that the peer sent when it accepted the connection. It is empty at the
  /// accepting end, where the peer's data is in the `cm_request`.
  [[nodiscard]] const cm_acceptance_data& data() const noexcept { return theirs_; }
  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// Returns the librdmacm identifier, or null if this is empty. The identifier's `id->qp` is null.
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return id_.native(); }

 private:
  [[nodiscard]] std::optional<cm_event> heard(
      const std::optional<detail::cm_event_data>& event) noexcept;

  detail::cm_identifier id_{};
  cm_acceptance_data theirs_{};
  cm_state state_ = cm_state::empty;
};

/// A channel and the connection manager's part of its connection.
struct managed_channel {
  cm_connection
      connection;  ///< destroyed last: the peer is notified when the channel no longer exists
  verbspp::channel channel;
};

/// A queue pair and the connection manager's part of its connection.
template <class Connected>
struct managed_queue_pair {
  cm_connection connection;
  Connected queue_pair;
};

}  // namespace verbspp
