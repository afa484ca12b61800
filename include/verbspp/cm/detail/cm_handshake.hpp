// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/stoppable_limit.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/cm/cm_connection.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>
#include <verbspp/cm/private_data.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/modification.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <infiniband/verbs.h>
#include <poll.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp::detail {

/// The parameters that the two ends exchange.
struct cm_parameters {
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  cm_acceptance_data data{};  ///< large enough for the data of a request, too
  std::uint8_t retries = 7;
  std::uint8_t rnr_retries = 7;
};

enum class cm_step : std::uint8_t {
  waiting,
  /// The caller must connect the queue pair with `attributes`, and then call `set_connected`.
  connect,
  done,
};

/// One end of a connection that is being established, without its queue pair or channel.
class cm_handshake {
 public:
  /// Sends the request to the peer.
  [[nodiscard]] static result<cm_handshake> connect(cm_identifier id, ibv_qp* queue_pair,
                                                    const endpoint& local,
                                                    const cm_parameters& asked,
                                                    const wait_limit& limit) noexcept;
  /// Prepares the answer to a request. The answer is sent by `set_connected`, after the queue
  /// pair's handshake.
  [[nodiscard]] static result<cm_handshake> accept(cm_identifier id, ibv_qp* queue_pair,
                                                   const endpoint& local,
                                                   const cm_parameters& answer,
                                                   const wait_limit& limit) noexcept;

  /// Proceeds as far as possible without waiting.
  /// \errors the cause of the failure; later calls return the same error
  [[nodiscard]] result<cm_step> poll() noexcept;
  [[nodiscard]] result<managed_attributes> attributes() noexcept;
  /// Reports to the handshake that the queue pair is now in RTS.
  [[nodiscard]] result<void> set_connected() noexcept;
  /// Ends the handshake with the error `why`, and notifies the peer.
  error refuse(const error& why) noexcept;
  /// Waits until an event is available, or the limit is reached.
  [[nodiscard]] result<void> wait() noexcept;

  [[nodiscard]] int file_descriptor() const noexcept {
    return descriptor_.get(id_.file_descriptor(), POLLIN, limit_);
  }
  /// True if `poll` can proceed before an event arrives.
  [[nodiscard]] bool has_work() const noexcept {
    return state_ != state::asked && state_ != state::answered;
  }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return descriptor_.alarm(limit_);
  }
  [[nodiscard]] const std::optional<cm_rejection>& rejection() const noexcept { return rejection_; }
  /// The private data that the peer sent when it accepted the request.
  [[nodiscard]] const cm_acceptance_data& theirs() const noexcept { return theirs_; }
  [[nodiscard]] cm_identifier take() noexcept { return std::move(id_); }

 private:
  enum class state : std::uint8_t { asked, connecting, answering, answered, done, failed };

  cm_handshake(cm_identifier id, state now, std::uint32_t queue_pair, bool has_shared_receives,
               const cm_parameters& parameters, const wait_limit& limit) noexcept
      : id_(std::move(id)),
        limit_(limit),
        parameters_(parameters),
        queue_pair_(queue_pair),
        state_(now),
        has_shared_receives_(has_shared_receives) {}
  [[nodiscard]] static result<cm_handshake> start(cm_identifier id, state now, ibv_qp* queue_pair,
                                                  const endpoint& local,
                                                  const cm_parameters& parameters,
                                                  const wait_limit& limit) noexcept;
  [[nodiscard]] const char* name() const noexcept;
  [[nodiscard]] result<cm_step> take(const cm_event_data& event) noexcept;

  cm_identifier id_;
  wait_limit limit_;
  mutable session_descriptor descriptor_{};  ///< created when it is first needed
  cm_parameters parameters_;
  cm_acceptance_data theirs_{};
  std::optional<cm_rejection> rejection_{};
  std::optional<error> failed_{};
  std::uint32_t queue_pair_;
  state state_;
  bool has_shared_receives_;
};

/// A channel that was connected in place. The destructor closes the channel, unless
/// `cm_session::finish` has called `keep`.
class cm_connected_in_place {
 public:
  explicit cm_connected_in_place(channel& connected) noexcept : channel_(&connected) {}
  cm_connected_in_place(cm_connected_in_place&& other) noexcept
      : channel_(std::exchange(other.channel_, nullptr)) {}
  cm_connected_in_place& operator=(cm_connected_in_place&& other) noexcept {
    std::swap(channel_, other.channel_);
    return *this;
  }
  cm_connected_in_place(const cm_connected_in_place&) = delete;
  cm_connected_in_place& operator=(const cm_connected_in_place&) = delete;
  ~cm_connected_in_place() {
    if (channel_ != nullptr) static_cast<void>(channel_->close());
  }

  void keep() && noexcept { channel_ = nullptr; }

 private:
  channel* channel_;
};

/// A prepared channel that belongs to the program, and that the handshake connects in place.
class cm_channel_in_place {
 public:
  explicit cm_channel_in_place(channel& prepared) noexcept : channel_(&prepared) {}
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return channel_->native_handle(); }
  [[nodiscard]] struct endpoint endpoint() const noexcept { return channel_->endpoint(); }
  [[nodiscard]] result<cm_connected_in_place> handshake(const managed_attributes& by) && noexcept {
    VERBSPP_TRYV(channel_->handshake(by));
    return cm_connected_in_place(*channel_);
  }

 private:
  channel* channel_;
};

/// Checks that a channel is prepared.
/// \errors as the handshake of a channel
[[nodiscard]] result<void> check_prepared(const channel& renewed) noexcept;

/// Traits of the objects that the connection manager can connect.
template <class End>
struct cm_end {
  static constexpr bool exists = false;
  using outcome = void;
};

template <>
struct cm_end<prepared_channel> {
  static constexpr bool exists = true;
  using connected = channel;
  using outcome = managed_channel;
  static outcome made(cm_connection&& connection, connected&& end) noexcept {
    return {std::move(connection), std::move(end)};
  }
};

template <>
struct cm_end<cm_channel_in_place> {
  static constexpr bool exists = true;
  using connected = cm_connected_in_place;
  using outcome = cm_connection;
  static outcome made(cm_connection&& connection, connected&& end) noexcept {
    std::move(end).keep();
    return std::move(connection);
  }
};

template <receive_queue_kind Receives, posting_interface Posting>
struct cm_end<queue_pair<transport::rc, queue_pair_state::init, Receives, Posting>> {
  static constexpr bool exists = true;
  using connected = queue_pair<transport::rc, queue_pair_state::ready_to_send, Receives, Posting>;
  using outcome = managed_queue_pair<connected>;
  static outcome made(cm_connection&& connection, connected&& end) noexcept {
    return {std::move(connection), std::move(end)};
  }
};

}  // namespace verbspp::detail
