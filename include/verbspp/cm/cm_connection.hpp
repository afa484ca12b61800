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

/// What is known of a connection.
enum class cm_state : std::uint8_t {
  empty,  ///< a default constructed one, or one that was moved from
  connected,
  disconnected,  ///< by either end; packets of it may be under way still: time-wait
  over,          ///< time-wait has ended
  removed,       ///< the device was removed
};

/// "connected" and so on.
[[nodiscard]] const char* to_string(cm_state state) noexcept;

/// What the connection manager has of a connection: how its end is told to the peer, and heard of.
///
/// The queue pair, or channel, is another object, and may go before or after this. Destroying it
/// tells the peer that the connection has ended. A move-only owner. Thread rule: as a container;
/// its descriptor may be waited for on another thread.
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
  /// For the library.
  cm_connection(detail::cm_identifier id, const cm_acceptance_data& theirs) noexcept
      : id_(std::move(id)), theirs_(theirs), state_(cm_state::connected) {}

  /// Tells the peer that this is the end (`rdma_disconnect`): when all that was to be sent is done.
  /// A peer that has ended it already is no failure.
  /// \errors `not_connected` if this is empty, or the device was removed
  result<void> disconnect() noexcept;
  /// Waits until either end has ended it; that the peer did is answered.
  /// \errors `timed_out`, `cancelled` at the limit, which changes nothing; `not_connected` if this
  /// is empty; `not_found` if the device was removed
  [[nodiscard]] result<void> wait_for_end(const wait_limit& limit) noexcept;

  /// The next event, if there is one; never blocks. `disconnected` is answered.
  /// \errors `not_connected` if this is empty; `driver` if the kernel's manager is gone
  [[nodiscard]] result<std::optional<cm_event>> next_event() noexcept;
  /// The same; none at the limit.
  [[nodiscard]] result<std::optional<cm_event>> wait_event(const wait_limit& limit) noexcept;
  /// For epoll and poll: readable when there is an event. The first is that the peer has ended the
  /// connection, unless the device or the address has gone before; so a channel that is told to
  /// `watch` it never waits for a peer that has left. -1 if this is empty.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }

  /// As of the last event that was read.
  [[nodiscard]] cm_state state() const noexcept { return state_; }
  /// What came with the peer's acceptance; nothing at the end that accepted, whose `cm_request` had
  /// the peer's.
  [[nodiscard]] const cm_acceptance_data& data() const noexcept { return theirs_; }
  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// Null if this is empty. It has no queue pair (`id->qp`).
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return id_.native(); }

 private:
  [[nodiscard]] std::optional<cm_event> heard(
      const std::optional<detail::cm_event_data>& event) noexcept;

  detail::cm_identifier id_{};
  cm_acceptance_data theirs_{};
  cm_state state_ = cm_state::empty;
};

/// A channel and what its connection manager has of it.
struct managed_channel {
  cm_connection connection;  ///< goes last: the peer hears of the end when the channel has gone
  verbspp::channel channel;
};

/// A queue pair and what its connection manager has of it.
template <class Connected>
struct managed_queue_pair {
  cm_connection connection;
  Connected queue_pair;
};

}  // namespace verbspp
