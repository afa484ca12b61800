// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/trust_driver.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/core/channel_failure.hpp>
#include <verbspp/core/detail/tied_socket.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/queue_pair_data.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/waiting.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/work_error.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace verbspp::detail {

class channel_loop;  // in channel_connection.cpp

/// The parameters of a channel, which its builder collects.
struct channel_settings {
  hub_reference hub{};  ///< declared first, so it is destroyed after the queues
  transport type = transport::rc;
  queue_pair_settings queue_pair{};
  std::chrono::nanoseconds default_limit = usual_limit;
  wait_mode waiting = wait_mode::spin();
};

/// The connection of a channel: a queue pair, its completion queue, the endpoints of both ends, and
/// the failure. It also has the other sources of events that end waits: asynchronous events of the
/// device, and the watched descriptor.
///
/// The connection is prepared, then connected, then broken or closed; `make_queue_pair` and `begin`
/// prepare it again. The root of its failure is the first failure that is certain to be a cause. A
/// flushed request is only a consequence of some other failure, so it is an uncertain root, which
/// is replaced as soon as a certain one is known.
class channel_connection {
 public:
  explicit channel_connection(channel_settings settings) noexcept;
  channel_connection(const channel_connection&) = delete;
  channel_connection& operator=(const channel_connection&) = delete;
  ~channel_connection();

  // Properties.

  [[nodiscard]] channel_state state() const noexcept { return state_; }
  void set_state(channel_state state) noexcept { state_ = state; }
  /// This side's endpoint, which the peer needs in order to connect.
  [[nodiscard]] const endpoint& local() const noexcept { return local_; }
  /// The `owner` in the last peer's endpoint; 0 before the first handshake, or if that endpoint has
  /// no owner, or if a connection manager has found the peer.
  [[nodiscard]] std::uint32_t peer_owner() const noexcept { return peer_owner_; }
  /// The number of the peer's queue pair; 0 before the handshake.
  [[nodiscard]] std::uint32_t peer_number() const noexcept { return peer_number_; }
  /// The number of queue pairs that the channel has had so far.
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
  [[nodiscard]] VERBSPP_DATA_PATH transport type() const noexcept { return settings_.type; }
  [[nodiscard]] VERBSPP_DATA_PATH ibv_qp* native() const noexcept { return native_; }
  /// The queue pair's extended posting interface; null if it was created without one.
  [[nodiscard]] VERBSPP_DATA_PATH ibv_qp_ex* native_extended() const noexcept { return extended_; }
  /// The granted capacities.
  [[nodiscard]] VERBSPP_DATA_PATH const queue_pair_capacities& capacities() const noexcept {
    return capacities_;
  }
  [[nodiscard]] bool has_queue_pair() const noexcept { return queue_pair_.has_value(); }
  [[nodiscard]] std::uint8_t port() const noexcept { return queue_pair_->parameters.port.value(); }
  [[nodiscard]] const completion_queue& queue() const noexcept {
    return *settings_.queue_pair.send_queue;
  }
  [[nodiscard]] const protection_domain& domain() const noexcept {
    return *settings_.queue_pair.domain;
  }
  /// The requested parameters.
  [[nodiscard]] const channel_settings& settings() const noexcept { return settings_; }

  // Preparing, connecting and ending the connection.

  /// Creates a completion queue, unless a working one exists.
  [[nodiscard]] result<void> make_queue() noexcept;
  /// Uses the queues of a hub.
  void use_queues(const completion_queue& queue,
                  const std::optional<shared_receive_queue>& receives) noexcept;
  /// Creates a queue pair, and the next endpoint, whose generation is higher by 1.
  [[nodiscard]] result<void> make_queue_pair() noexcept;
  /// Enters the state `prepared`, clears the failure, and listens for asynchronous events.
  void begin() noexcept;
  /// Connects to the peer. After an error, the caller has to break the connection.
  /// \errors as `queue_pair::handshake`
  [[nodiscard]] result<void> connect(const endpoint& remote) noexcept;
  [[nodiscard]] result<void> connect(const managed_attributes& by) noexcept;
  /// Checks that `connect` may be called.
  [[nodiscard]] result<void> check_prepared() const noexcept;
  [[nodiscard]] result<void> check_newer(const endpoint& remote) const noexcept;
  /// Moves the queue pair to ERR, which flushes all outstanding requests.
  void stop() noexcept;
  /// The time at which `stop` was first called for this connection; the current time if it was not
  /// called.
  [[nodiscard]] std::chrono::steady_clock::time_point stopped_at() const noexcept {
    return stopped_at_.value_or(std::chrono::steady_clock::now());
  }
  /// Destroys the queue pair. \returns 0, or an errno if the queue pair still exists
  [[nodiscard]] int destroy_queue_pair() noexcept;
  /// The result of the last call of `destroy_queue_pair`.
  [[nodiscard]] int destroy_errnum() const noexcept { return destroy_errnum_; }
  /// Destroys the queue pair if it still exists. A failure is reported to the handler of
  /// `set_destroy_failure_handler`.
  void drop_queue_pair() noexcept;

  // The failure.

  [[nodiscard]] const std::optional<channel_failure>& failure() const noexcept { return failure_; }
  [[nodiscard]] std::optional<channel_failure>& failure() noexcept { return failure_; }
  /// Returns the failure of a request.
  [[nodiscard]] work_error failed(std::uint32_t status, std::uint32_t vendor_code,
                                  std::uint64_t wr_id, work_operation operation) const noexcept;
  /// Records a failure. A certain failure replaces an uncertain root.
  /// \param by the event, if any, that ended a wait and so caused this failure
  void fail(const error& root, bool is_certain, std::optional<wait_end> by = {}) noexcept;
  /// Adds the number of the peer's queue pair to the failure of a request and, if the request was
  /// flushed, the cause of the flush.
  [[nodiscard]] work_error explained(const work_error& unnamed) noexcept;
  /// Returns the cause of a flush that no completion explains. Such a cause is an asynchronous
  /// event of the device, for which this function waits a short time. Empty if no event arrives, or
  /// if the root is already certain.
  [[nodiscard]] std::optional<error> reason_of_flush() noexcept;
  /// Breaks the connection, because polling the completion queue has failed and returned this
  /// value. The cause is the failure that the device has reported, if there is one. \returns false
  /// if polling had already failed before
  [[nodiscard]] bool lose_queue(int returned) noexcept;
  [[nodiscard]] bool queue_is_lost() const noexcept { return queue_is_lost_; }
  /// The error to return because `operation` is not possible in the current state.
  [[nodiscard]] error refusal(const char* operation) const noexcept;

  // Completions, and waiting for them.

  [[nodiscard]] VERBSPP_DATA_PATH int poll(ibv_wc (&completions)[16]) noexcept {
    return trust_driver([&]() __attribute__((always_inline)) {
      return ibv_poll_cq(native_queue_, 16, completions);
    });
  }
  /// Waits in the configured mode until `look` returns `met`, or another event ends the wait.
  /// \param signal an eventfd that makes the wait call `look`; negative for none
  [[nodiscard]] result<wait_end> wait(const looking& look, const wait_limit& until,
                                      const watched_descriptor& another = {},
                                      int signal = -1) noexcept;
  /// Clears the eventfd that `wake` makes readable, and returns it; -1 if the channel only spins.
  /// Creates it if necessary.
  /// \errors `resource_exhausted`
  [[nodiscard]] result<int> ready_signal() noexcept;
  /// Sets the descriptor whose events end waits and break the connection.
  void watch(const watched_descriptor& watched) noexcept;
  [[nodiscard]] const watched_descriptor& watched() const noexcept { return watched_; }
  /// The socket over which the peer is notified when this end closes the connection; may be empty.
  [[nodiscard]] tied_socket& socket() noexcept { return socket_; }
  /// Returns the failure that the device has reported with an asynchronous event.
  [[nodiscard]] error heard() noexcept;

  // Support for the program's event loops. The descriptor is created when it is first needed.

  [[nodiscard]] bool has_loop() const noexcept { return loop_ != nullptr; }
  /// The descriptor; -1 in the same cases as `channel::file_descriptor`.
  [[nodiscard]] int loop_descriptor() noexcept;
  /// Reads the pending events, and requests an event for the next completion.
  /// \errors as `channel::request_notification`, except for `not_connected`
  [[nodiscard]] result<void> ask_to_be_woken() noexcept;
  /// Wakes the event loop that sleeps on the descriptor, and the thread that sleeps on the eventfd
  /// of `ready_signal`. Any thread may call this.
  void wake() const noexcept;
  /// Reads the events that have made the descriptor readable. \pre `has_loop`
  void take_loop_events() noexcept;
  /// The event that ends the connection. Empty if the event loop has read no such event, or if
  /// completions may still arrive after it. \pre `has_loop`
  [[nodiscard]] std::optional<wait_end> seen_end() const noexcept;
  /// The time from which `seen_end` reports the event of the watched descriptor; the maximum if no
  /// such event was read.
  [[nodiscard]] std::chrono::steady_clock::time_point seen_end_at() const noexcept {
    return watched_ends_at_;
  }

 private:
  [[nodiscard]] result<void> open_loop() noexcept;
  void note_endpoint() noexcept;

  channel_state state_ = channel_state::prepared;
  bool root_is_certain_ = false;
  bool queue_is_lost_ = false;
  bool loop_has_watched_ = false;
  int destroy_errnum_ = 0;
  ibv_qp* native_ = nullptr;
  ibv_cq* native_queue_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;
  queue_pair_capacities capacities_{};
  endpoint local_{};
  std::optional<channel_failure> failure_{};
  channel_settings settings_;
  std::optional<queue_pair_data> queue_pair_{};

  channel_loop* loop_ = nullptr;  ///< owned; null until the program uses an event loop
  int loop_signal_ = -1;          ///< wakes that loop; accessed atomically
  int wait_signal_ = -1;          ///< wakes a waiting thread; owned; accessed atomically
  async_listener listener_;       ///< for failures of the device
  watched_descriptor watched_{};
  std::chrono::steady_clock::time_point watched_ends_at_ =
      (std::chrono::steady_clock::time_point::max)();
  std::uint32_t owner_;  ///< a random number that identifies this channel in its endpoints
  std::uint32_t generation_ = 0;
  std::optional<endpoint> last_peer_{};
  std::uint32_t peer_owner_ = 0;
  std::uint32_t peer_number_ = 0;
  gid peer_address_{};
  tied_socket socket_{};
  std::optional<std::chrono::steady_clock::time_point> stopped_at_{};
};

}  // namespace verbspp::detail
