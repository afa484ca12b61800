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

/// One side of a meeting (`meet`), which an event loop drives.
///
///     VERBSPP_TRY(session, (meeting_session<Theirs, prepared_channel>::start(
///                              listener, "other-host", "4711", std::move(prepared), mine, 30s)));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.advance());
///       if (is_done) break;
///       ... wait until session.file_descriptor() is readable
///     }
///     VERBSPP_TRY(peer, std::move(session).finish());
///
/// The listener, and what the options refer to, have to live as long as this. A move-only owner;
/// one that goes before it is done tells the peer so. One that was moved from, or that has given
/// its outcome, is empty, and refuses everything (`invalid_input`). Thread rule: as a container.
template <class Theirs, class End>
  requires ExchangeEnd<End>
class meeting_session {
  using session = exchange_session<Theirs, End>;

 public:
  /// What `finish` gives.
  using outcome = accepted_exchange<typename session::outcome>;

  /// Begins: whoever connects waits in the listener's queue. A host's name is looked up by a thread
  /// that lasts as long as that, as by `tcp_socket::connect`.
  /// \errors `invalid_input` for a listener that is not open, what is no host or port, and options
  /// that cannot travel; `resource_exhausted`
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
                             "a meeting uses its listener until it is done, and this one is a "
                             "temporary: give it a listener that has a name");

  /// Does what can be done without waiting; the handshake of the queue pair, which takes system
  /// calls, among it.
  /// \returns whether it is done
  /// \errors as `meet`; later calls give the same
  [[nodiscard]] result<bool> advance() noexcept {
    if (!search_)
      return error(error_kind::invalid_input, "meeting_session",
                   "this session was moved from, or finish has returned its outcome already");
    if (!running_) {
      VERBSPP_TRY(is_found, search_->advance());
      if (!is_found) return false;
      running_.emplace(session::continued(search_->take_exchange(), std::move(prepared_)));
    }
    VERBSPP_TRY(is_done, running_->advance());
    if (!is_done) search_->watch(running_->events(), running_->deadline());
    return is_done;
  }
  /// What came of it, once `advance` has said that it is done.
  /// \errors `busy` if it is not; `invalid_input` if it was called before
  [[nodiscard]] result<outcome> finish() && noexcept {
    VERBSPP_TRY(is_done, advance());
    if (!is_done)
      return error(error_kind::busy, "meeting_session::finish",
                   "the meeting goes on: call advance until it says that it is done");
    VERBSPP_TRY(met, std::move(*running_).finish());
    tcp_socket socket = search_->take_socket();
    search_ = {};
    return outcome{std::move(socket), std::move(met)};
  }
  /// Waits, again and again, until it is done.
  /// \errors as `advance`
  [[nodiscard]] result<outcome> run() && noexcept {
    for (;;) {
      VERBSPP_TRY(is_done, advance());
      if (is_done) return std::move(*this).finish();
      VERBSPP_TRYV(search_->wait());
    }
  }

  /// For epoll and poll: readable when there is something to do, the passing of a limit included.
  /// -1 if the session is empty.
  [[nodiscard]] int file_descriptor() const noexcept {
    return search_ ? search_->file_descriptor() : -1;
  }

 private:
  meeting_session(detail::owned<detail::peer_search> search, End&& prepared) noexcept
      : search_(std::move(search)), prepared_(std::move(prepared)) {}

  detail::owned<detail::peer_search> search_;
  End prepared_;
  // Goes before the socket.
  std::optional<session> running_{};
};

/// An exchange between two that are equals: both listen, both connect to the other, at the same
/// time or not, and exactly one connection comes of it.
///
///     VERBSPP_TRY(listener, tcp_listener::open("4711"));
///     VERBSPP_TRY(peer, meet<Theirs>(listener, "other-host", "4711", std::move(prepared), mine,
///     30s)); peer.socket, peer.met.channel, peer.met.theirs
///
/// Each side has a random number, and that of the greater one chooses: the first connection on
/// which both have said what they are. The other waits until it learns of the choice. Where only
/// one can reach the other, that one's connection is it. Nobody need be there first: what is
/// refused is tried again, twenty times a second, until the limit.
///
/// The listener is for this peer alone as long as this waits; strangers that connect are refused,
/// and change nothing. Connections that were not chosen may be left in its queue: they are closed,
/// and the next meeting passes over them. An event loop drives a `meeting_session` instead.
/// \errors as `exchange`; `mismatch` and `permission` at once if the peer at that host does not
/// fit; `timed_out` and `cancelled` at the limit, with the last failure in words
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
/// The same with a channel that stays where it is, as with `exchange`.
/// \returns the socket, and as `met` the values of the peer's
template <class Theirs, class Mine>
[[nodiscard]] result<accepted_exchange<Theirs>> meet(
    const tcp_listener& listener, std::string_view host, std::string_view port, channel& renewed,
    const Mine& mine, const wait_limit& limit, const exchange_options& options = {}) noexcept {
  return meet<Theirs>(listener, host, port, detail::channel_in_place{&renewed}, mine, limit,
                      options);
}

}  // namespace verbspp
