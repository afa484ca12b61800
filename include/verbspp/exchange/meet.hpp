// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/exchange/acceptor.hpp>
#include <verbspp/exchange/detail/find_peer.hpp>
#include <verbspp/exchange/exchange.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace verbspp {

/// One side of a meeting (see `meet`) that an event loop can drive:
///
///     VERBSPP_TRY(session, (meeting_session<Theirs, prepared_channel>::start(
///                              listener, "other-host", "4711", std::move(prepared), mine, 30s)));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.poll());
///       if (is_done) break;
///       ... wait until session.file_descriptor() is readable
///     }
///     VERBSPP_TRY(peer, std::move(session).finish());
///
/// The listener, and the text and bytes that the options refer to, must stay valid as long as the
/// session exists. A move-only owner. Destroying a session that is not done notifies the peer. A
/// session that was moved from, or whose result was taken, is empty, and its calls that return a
/// result fail (`invalid_input`). Thread rule: as for a standard container.
template <class Theirs, class End>
  requires ExchangeEnd<End>
class meeting_session {
  using session = exchange_session<Theirs, End>;

 public:
  /// The result of `finish`.
  using outcome = accepted_exchange<typename session::outcome>;

  /// Starts a session. Incoming connections wait in the listener's queue until `poll` is called.
  /// A separate thread looks up a host name, as in `tcp_socket::connect`.
  /// \errors `invalid_input` if the listener is not open, or the host, the port or an option is not
  /// valid; `not_supported` for a secret if the library was built without libcrypto;
  /// `resource_exhausted`; the errno of `getrandom`
  template <class Mine>
  [[nodiscard]] static result<meeting_session> start(
      const tcp_listener& listener, std::string_view host, std::string_view port, End prepared,
      const Mine& mine, const wait_limit& limit, const exchange_options& options = {}) noexcept {
    VERBSPP_TRY(search,
                detail::peer_search::create(listener, host, port,
                                            session::template setup_of<Mine>(-1, options), limit));
    session::write_offer(*search.get(), prepared, mine);
    return meeting_session(std::move(search), std::move(prepared));
  }
  template <class Mine>
  static result<meeting_session> start(const tcp_listener&&, std::string_view, std::string_view,
                                       End, const Mine&, const wait_limit&,
                                       const exchange_options& = {})
      VERBSPP_DETAIL_REFUSED(!std::is_void_v<Mine>,
                             "a meeting uses its listener until the meeting is done: store the "
                             "listener in a variable, and pass it without std::move");

  /// Proceeds as far as possible without waiting. This includes the queue pair's handshake, which
  /// makes system calls.
  /// \returns true when the meeting is done
  /// \errors as `meet`; later calls return the same error
  [[nodiscard]] result<bool> poll() noexcept {
    if (!search_) return empty();
    if (!running_) {
      VERBSPP_TRY(is_found, search_->poll());
      if (!is_found) return false;
      running_.emplace(session::continued(search_->take_exchange(), std::move(prepared_)));
    }
    VERBSPP_TRY(is_done, running_->poll());
    if (!is_done) search_->watch(running_->events());
    return is_done;
  }
  /// Returns the result of the meeting, once `poll` has returned true.
  /// \errors `busy` if the meeting is not done; `invalid_input` if the result has already been
  /// taken; as `poll`
  [[nodiscard]] result<outcome> finish() && noexcept {
    VERBSPP_TRY(is_done, poll());
    if (!is_done)
      return error(error_kind::busy, "meeting_session::finish",
                   "the meeting is still in progress: call poll until it returns true");
    VERBSPP_TRY(met, std::move(*running_).finish());
    tcp_socket socket = search_->take_socket();
    search_ = {};
    return outcome{std::move(socket), std::move(met)};
  }
  /// Waits and calls `poll` until the meeting is done, and then returns its result.
  /// \errors as `poll`
  [[nodiscard]] result<outcome> run() && noexcept {
    for (;;) {
      VERBSPP_TRY(is_done, poll());
      if (is_done) return std::move(*this).finish();
      VERBSPP_TRYV(search_->wait());
    }
  }

  /// The descriptor for epoll and poll, which is readable when `poll` has work to do, for
  /// instance because the limit was reached. An empty session returns -1.
  [[nodiscard]] int file_descriptor() const noexcept {
    return search_ ? search_->file_descriptor() : -1;
  }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  /// \errors `invalid_input` if the session is empty
  [[nodiscard]] result<bool> request_notification() noexcept {
    if (!search_) return empty();
    return false;
  }
  /// Returns the maximum time point, because the descriptor also becomes readable when the limit is
  /// reached.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }

 private:
  [[nodiscard]] static error empty() noexcept {
    return {error_kind::invalid_input, "meeting_session",
            "this session was moved from, or its result was already taken"};
  }
  meeting_session(detail::owned<detail::peer_search> search, End&& prepared) noexcept
      : search_(std::move(search)), prepared_(std::move(prepared)) {}

  detail::owned<detail::peer_search> search_;
  End prepared_;
  // Declared last, so that it is destroyed before the socket, which belongs to `search_`.
  std::optional<session> running_{};
};

/// Performs an exchange between two equal peers, each of which listens, and also connects to the
/// other. The peers need not start at the same time. On success, the result is exactly one
/// connection.
///
///     VERBSPP_TRY(listener, tcp_listener::open("4711"));
///     VERBSPP_TRY(peer, meet<Theirs>(listener, "other-host", "4711", std::move(prepared),
///                                    mine, 30s));
///     peer.socket, peer.met.channel, peer.met.theirs
///
/// Each side draws a random number, and the side with the greater number chooses the first
/// connection on which both sides have introduced themselves. The other side waits until it is
/// notified of the choice. If only one side can reach the other, the connection made by that side
/// is used. Neither side needs to start first: refused connections are retried, twenty times a
/// second, until the limit is reached.
///
/// While the call waits, the listener serves only this peer. Other programs that connect are
/// refused if they do not match; this may delay the meeting, but does not end it. Connections that
/// were not chosen may remain in the listener's queue, but they are closed, and the next meeting
/// skips them. For an event loop, use a `meeting_session`.
/// \errors as `exchange`; `mismatch` and `permission`, both immediately, if the program at that
/// host does not match; `timed_out` and `cancelled` when the limit is reached, with the text of an
/// earlier failure, if there was one
template <class Theirs, class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto meet(const tcp_listener& listener, std::string_view host, std::string_view port,
                        End prepared, const Mine& mine, const wait_limit& limit,
                        const exchange_options& options = {}) noexcept
    -> result<typename meeting_session<Theirs, End>::outcome> {
  using session = meeting_session<Theirs, End>;
  VERBSPP_TRY(started,
              session::start(listener, host, port, std::move(prepared), mine, limit, options));
  return std::move(started).run();
}
/// Like `meet` above, but connects a prepared channel in place, as `exchange` does.
/// \returns the socket, and the peer's values in `met`
template <class Theirs, class Mine>
[[nodiscard]] result<accepted_exchange<Theirs>> meet(
    const tcp_listener& listener, std::string_view host, std::string_view port, channel& renewed,
    const Mine& mine, const wait_limit& limit, const exchange_options& options = {}) noexcept {
  return meet<Theirs>(listener, host, port, detail::channel_in_place{&renewed}, mine, limit,
                      options);
}

}  // namespace verbspp
