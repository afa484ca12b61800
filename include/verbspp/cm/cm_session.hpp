// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/cm/cm_connection.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_handshake.hpp>

#include <optional>
#include <utility>

namespace verbspp {

template <class End>
concept CmEnd =
    detail::because(detail::cm_end<End>::exists,
                    "a connection manager can connect only a prepared_channel, a prepared RC queue "
                    "pair, or a variable of type channel that is prepared or renewed");

/// One end of a connection that is being established. An event loop can drive it:
///
///     VERBSPP_TRY(session, std::move(route).start_connect(std::move(prepared), 5s));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.poll());
///       if (is_done) break;
///       ... wait until session.file_descriptor() is readable, or session.deadline() has passed
///     }
///     auto met = std::move(session).finish();
///
/// A move-only owner. Destroying a session before `finish` has returned its result notifies the
/// peer. Thread rule: as for a standard container.
template <class End>
  requires CmEnd<End>
class cm_session {
  using connected = typename detail::cm_end<End>::connected;

 public:
  /// The result of `finish`: a `managed_channel` or a `managed_queue_pair`, or a `cm_connection` if
  /// a channel is connected in place.
  using outcome = typename detail::cm_end<End>::outcome;

  /// Used by the library only.
  cm_session(detail::cm_handshake handshake, End&& prepared,
             cm_rejection* rejection = nullptr) noexcept
      : handshake_(std::move(handshake)), prepared_(std::move(prepared)), told_(rejection) {}
  cm_session(const cm_session&) = delete;
  cm_session& operator=(const cm_session&) = delete;
  cm_session(cm_session&&) noexcept = default;
  cm_session& operator=(cm_session&&) noexcept = default;
  ~cm_session() = default;

  /// Proceeds as far as possible without waiting for the peer. This includes the queue pair's
  /// handshake, which makes system calls.
  /// \returns true when this end is connected. The peer is then connected, too, or will be when it
  /// receives the last message, which the kernels repeat if it is lost.
  /// \errors `not_connected` if the peer rejected the request (with the reason), the peer has left,
  /// or the address moved to another device; `timed_out` if the peer does not answer, or the limit
  /// is reached; `cancelled` if a stop was requested; `not_found` if the device was removed, or the
  /// peer is unreachable; `invalid_input` if the session was moved from, or its result was taken;
  /// as `queue_pair::handshake`; other errors of the kernel. On failure, the peer is notified, and
  /// later calls return the same error. The local object is destroyed immediately or with the
  /// session, unless it is a channel that is connected in place (see `cm_route::connect`).
  [[nodiscard]] result<bool> poll() noexcept {
    for (;;) {
      result<detail::cm_step> step = handshake_.poll();
      if (!step.has_value()) {
        if (told_ != nullptr && handshake_.rejection()) *told_ = *handshake_.rejection();
        return step.assume_error();
      }
      if (step.assume_value() == detail::cm_step::waiting) return false;
      if (step.assume_value() == detail::cm_step::done) return true;
      VERBSPP_TRY(attributes, handshake_.attributes());
      result<connected> made = std::move(prepared_).handshake(attributes);
      if (!made.has_value()) return handshake_.refuse(made.assume_error());
      connected_.emplace(std::move(made).assume_value());
      VERBSPP_TRYV(handshake_.set_connected());
    }
  }
  /// Returns the established connection, once `poll` has returned true.
  /// \errors `busy` if the connection is not established yet; as `poll`
  [[nodiscard]] result<outcome> finish() && noexcept {
    VERBSPP_TRY(is_done, poll());
    if (!is_done)
      return error(error_kind::busy, "cm_session::finish",
                   "the connection is still in progress: call poll until it returns true");
    return detail::cm_end<End>::made(cm_connection(handshake_.take(), handshake_.theirs()),
                                     std::move(*connected_));
  }
  /// Waits for the peer and calls `poll` until the connection is established, and then returns
  /// the connection.
  /// \errors as `poll`
  [[nodiscard]] result<outcome> run() && noexcept {
    for (;;) {
      VERBSPP_TRY(is_done, poll());
      if (is_done) return std::move(*this).finish();
      VERBSPP_TRYV(handshake_.wait());
    }
  }

  /// The descriptor for epoll and poll, which is readable when an event for the connection is
  /// available. A stop request makes it readable, too, except in the cases that `wait_limit`
  /// describes.
  [[nodiscard]] int file_descriptor() const noexcept { return handshake_.file_descriptor(); }
  /// True if `poll` can proceed before the descriptor is readable, for instance when this end
  /// has just started to accept. This call changes nothing.
  [[nodiscard]] result<bool> request_notification() noexcept { return handshake_.has_work(); }
  /// The latest time to call `poll`, even if the descriptor is not readable. If there is a stop
  /// token, and either `file_descriptor` was not called, or a stop request cannot make the
  /// descriptor readable (see `wait_limit`), this time is at most 10 ms from now, because `poll`
  /// has to poll the token.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return handshake_.deadline(); }
  /// The peer's rejection, or nothing if the peer has not rejected the request.
  [[nodiscard]] const std::optional<cm_rejection>& rejection() const noexcept {
    return handshake_.rejection();
  }

 private:
  // Declared first, so that it is destroyed last: the peer is notified of the end after the queue
  // pair has been destroyed.
  detail::cm_handshake handshake_;
  End prepared_;
  std::optional<connected> connected_{};
  cm_rejection* told_;
};

}  // namespace verbspp
