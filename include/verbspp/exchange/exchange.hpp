// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/exchange/detail/exchange_core.hpp>
#include <verbspp/exchange/detail/field.hpp>
#include <verbspp/exchange/exchange_options.hpp>
#include <verbspp/exchange/exchanged_value.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The result of an exchange: the connected channel, and the values that the peer sent.
template <class Theirs>
struct exchanged_channel {
  verbspp::channel channel;
  Theirs theirs;
};

/// The result of an exchange with a queue pair: the connected queue pair, and the values that the
/// peer sent.
template <class Connected, class Theirs>
struct exchanged_queue_pair {
  Connected queue_pair;
  Theirs theirs;
};

namespace detail {

/// Traits of the objects that an exchange can connect.
template <class End>
struct exchange_end {
  static constexpr bool exists = false;
};

template <>
struct exchange_end<prepared_channel> {
  static constexpr bool exists = true;
  static constexpr bool is_channel = true;
  using connected = channel;
  template <class Theirs>
  using outcome = exchanged_channel<Theirs>;

  static endpoint local(const prepared_channel& end) noexcept { return end.endpoint(); }
  static result<channel> connect(prepared_channel& end, const endpoint& remote) noexcept {
    return std::move(end).handshake(remote);
  }
  template <class Theirs>
  static exchanged_channel<Theirs> made(channel&& connected, Theirs&& theirs) noexcept {
    return {std::move(connected), std::forward<Theirs>(theirs)};
  }
};

/// A channel that belongs to the program and is connected in place. If the exchange fails after the
/// channel's handshake, the channel is closed.
struct channel_in_place {
  verbspp::channel* channel;
};
class connected_in_place {
 public:
  explicit connected_in_place(channel& connected) noexcept : channel_(&connected) {}
  connected_in_place(const connected_in_place&) = delete;
  connected_in_place& operator=(const connected_in_place&) = delete;
  connected_in_place(connected_in_place&& other) noexcept
      : channel_(std::exchange(other.channel_, nullptr)) {}
  connected_in_place& operator=(connected_in_place&& other) = delete;
  ~connected_in_place() {
    if (channel_ != nullptr) static_cast<void>(channel_->close());
  }
  void tie(tied_socket&& socket) noexcept { channel_->tie(std::move(socket)); }
  void keep() noexcept { channel_ = nullptr; }

 private:
  channel* channel_;
};

template <>
struct exchange_end<channel_in_place> {
  static constexpr bool exists = true;
  static constexpr bool is_channel = true;
  using connected = connected_in_place;
  template <class Theirs>
  using outcome = Theirs;

  static endpoint local(const channel_in_place& end) noexcept { return end.channel->endpoint(); }
  static result<connected_in_place> connect(channel_in_place& end,
                                            const endpoint& remote) noexcept {
    VERBSPP_TRYV(end.channel->handshake(remote));
    return connected_in_place(*end.channel);
  }
  template <class Theirs>
  static Theirs made(connected_in_place&& connected, Theirs&& theirs) noexcept {
    connected.keep();
    return std::forward<Theirs>(theirs);
  }
};

template <transport Transport, receive_queue_kind Receives, posting_interface Posting>
  requires Connects<Transport>
struct exchange_end<queue_pair<Transport, queue_pair_state::init, Receives, Posting>> {
  using prepared = queue_pair<Transport, queue_pair_state::init, Receives, Posting>;
  static constexpr bool exists = true;
  static constexpr bool is_channel = false;
  using connected = queue_pair<Transport, queue_pair_state::ready_to_send, Receives, Posting>;
  template <class Theirs>
  using outcome = exchanged_queue_pair<connected, Theirs>;

  static endpoint local(const prepared& end) noexcept { return end.endpoint(); }
  static result<connected> connect(prepared& end, const endpoint& remote) noexcept {
    return std::move(end).handshake(remote);
  }
  template <class Theirs>
  static exchanged_queue_pair<connected, Theirs> made(connected&& made, Theirs&& theirs) noexcept {
    return {std::move(made), std::forward<Theirs>(theirs)};
  }
};

}  // namespace detail

template <class End>
concept ExchangeEnd = detail::because(
    detail::exchange_end<End>::exists,
    "an exchange can connect only a prepared_channel, a prepared RC or UC queue pair, or a "
    "variable of type channel that is prepared or renewed");

/// One side of an exchange, which uses a connected stream socket to connect a channel or queue pair
/// and to receive the peer's values. An event loop can drive it:
///
///     VERBSPP_TRY(session, (exchange_session<Theirs, prepared_channel>::start(
///                              socket, std::move(prepared), mine, 5s)));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.poll());
///       if (is_done) break;
///       ... wait until session.file_descriptor() is ready for session.events(), or
///           session.deadline() has passed
///     }
///     auto met = std::move(session).finish();
///
/// The caller owns the socket, which may be blocking or not, and must keep it open as long as the
/// session exists. The session does not read any bytes that follow the exchange. A move-only owner.
/// Destroying a session that is not done notifies the peer. A session that was moved from, or whose
/// result was taken, is empty, and its calls that return a result fail (`invalid_input`). Thread
/// rule: as for a standard container.
template <class Theirs, class End>
  requires ExchangeEnd<End>
class exchange_session {
  using end = detail::exchange_end<End>;
  using values = detail::exchanged_values<Theirs>;

 public:
  /// The result of `finish`: `exchanged_channel<Theirs>` or `exchanged_queue_pair<..., Theirs>`, or
  /// `Theirs` if a channel is connected in place.
  using outcome = typename end::template outcome<Theirs>;

  /// Starts a session, without sending anything yet. `mine` is one value, or a std::tuple.
  /// If a side sends no values, their type is `std::tuple<>`.
  /// \errors `invalid_input` if the descriptor is not a stream socket, or the application's name or
  /// the secret is not valid; `not_supported` for a secret if the library was built without
  /// libcrypto; `resource_exhausted`; the errno of `getrandom`
  template <class Mine>
  [[nodiscard]] static result<exchange_session> start(
      int file_descriptor, End prepared, const Mine& mine, const wait_limit& limit,
      const exchange_options& options = {}) noexcept {
    VERBSPP_TRY(core,
                detail::exchange_core::create(setup_of<Mine>(file_descriptor, options), limit));
    write_offer(*core.get(), prepared, mine);
    return continued(std::move(core), std::move(prepared));
  }

  /// Used by the library only: returns the parameters of the exchange.
  template <class Mine>
  [[nodiscard]] static detail::exchange_setup setup_of(int file_descriptor,
                                                       const exchange_options& options) noexcept {
    using sent = detail::exchanged_values<Mine>;
    static_assert(sent::largest <= 65536 && values::largest <= 65536,
                  "one side can send at most 64 KiB in an exchange: send the rest after the "
                  "exchange, over the connection");
    return {.file_descriptor = file_descriptor,
            .mine = sent::description,
            .theirs = values::description,
            .largest_mine = sent::largest,
            .largest_theirs = values::largest,
            .options = options,
            .connects_channel = end::is_channel};
  }
  /// Used by the library only: writes the endpoint and the values for the peer.
  template <class Into, class Mine>
  static void write_offer(Into& into, const End& prepared, const Mine& mine) noexcept {
    detail::field_writer out(into.values());
    detail::exchanged_values<Mine>::write(out, mine);
    into.set_mine(end::local(prepared), out.size());
  }
  /// Used by the library only: continues an exchange whose offer has been written.
  [[nodiscard]] static exchange_session continued(detail::owned<detail::exchange_core> core,
                                                  End prepared) noexcept {
    return exchange_session(std::move(core), std::move(prepared));
  }

  /// Proceeds as far as possible without waiting for the socket. This includes the queue pair's
  /// handshake, which makes system calls.
  /// \returns true when the peer is connected, and knows that this side is connected, too
  /// \errors `mismatch` if the two ends do not match; `permission` if they have different secrets,
  /// or the bytes were changed in transit; `timed_out` and `cancelled` when the limit is reached;
  /// `not_connected` if the socket is not connected, or the peer has closed it, aborted, or failed;
  /// `invalid_input` if the received bytes do not belong to an exchange; `busy`, `permission` and
  /// `not_supported` if the peer refused with such an error; `resource_exhausted` if either end
  /// lacks resources, such as file descriptors; `driver` if libcrypto cannot derive keys; as
  /// `channel::handshake` and `queue_pair::handshake`. On failure, the reason is sent to the peer
  /// if it can be reached, and later calls return the same error. The local object is destroyed
  /// immediately or with the session, unless it is a channel that is connected in place, which is
  /// then broken, closed or still prepared.
  [[nodiscard]] result<bool> poll() noexcept {
    if (!core_) return empty();
    for (;;) {
      VERBSPP_TRY(step, core_->poll());
      if (step == detail::exchange_step::waiting) return false;
      if (step == detail::exchange_step::done) return true;
      if (step == detail::exchange_step::greeted) {
        core_->offer();
        continue;
      }
      detail::field_reader in(core_->theirs());
      result<Theirs> read = values::read(in);
      if (!read.has_value()) return core_->refuse(read.assume_error());
      result<detail::tied_socket> socket = core_->socket_to_tie();
      if (!socket.has_value()) return core_->refuse(socket.assume_error());
      result<typename end::connected> connected = end::connect(prepared_, core_->remote());
      if (!connected.has_value()) return core_->refuse(connected.assume_error());
      theirs_.emplace(std::move(read).assume_value());
      connected_.emplace(std::move(connected).assume_value());
      socket_ = std::move(socket).assume_value();
      core_->set_connected();
    }
  }
  /// Returns the result of the exchange, once `poll` has returned true.
  /// \errors `busy` if the exchange is not done; `invalid_input` if the result has already been
  /// taken; as `poll`
  [[nodiscard]] result<outcome> finish() && noexcept {
    VERBSPP_TRY(is_done, poll());
    if (!is_done)
      return error(error_kind::busy, "exchange_session::finish",
                   "the exchange is still in progress: call poll until it returns true");
    core_ = {};
    if constexpr (end::is_channel) connected_->tie(std::move(socket_));
    return end::made(std::move(*connected_), std::move(*theirs_));
  }
  /// Waits for the socket and calls `poll` until the exchange is done, and then returns its
  /// result.
  /// \errors as `poll`
  [[nodiscard]] result<outcome> run() && noexcept {
    for (;;) {
      VERBSPP_TRY(is_done, poll());
      if (is_done) return std::move(*this).finish();
      VERBSPP_TRYV(core_->wait());
    }
  }
  /// Aborts the exchange, and sends the reason to the peer.
  void refuse(const error& why) noexcept {
    if (core_) core_->refuse(why);
  }

  /// The descriptor for epoll and poll: the socket or, with a stop token that has callbacks,
  /// usually a descriptor that a stop request also makes readable; -1 if the session is empty.
  [[nodiscard]] int file_descriptor() const noexcept {
    return core_ ? core_->loop_descriptor() : -1;
  }
  /// The events of that descriptor to wait for: POLLIN, POLLOUT or both while the exchange is in
  /// progress; 0 if the session is empty.
  [[nodiscard]] short events() const noexcept { return core_ ? core_->loop_events() : short{0}; }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  /// \errors `invalid_input` if the session is empty
  [[nodiscard]] result<bool> request_notification() noexcept {
    if (!core_) return empty();
    return false;
  }
  /// The latest time to call `poll`, even if the descriptor is not ready. If there is a stop
  /// token, and either `file_descriptor` was not called, or a stop request cannot make the
  /// descriptor readable (see `wait_limit`), this time is at most 10 ms from now, because `poll`
  /// has to poll the token.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return core_ ? core_->deadline() : (wait_limit::time_point::max)();
  }

 private:
  [[nodiscard]] static error empty() noexcept {
    return {error_kind::invalid_input, "exchange_session",
            "this session was moved from, or its result was already taken"};
  }
  exchange_session(detail::owned<detail::exchange_core> core, End&& prepared) noexcept
      : prepared_(std::move(prepared)), core_(std::move(core)) {}

  End prepared_;
  std::optional<typename end::connected> connected_{};
  std::optional<Theirs> theirs_{};
  detail::tied_socket socket_{};
  // Declared last, so that it is destroyed first: the peer is notified before the connected object
  // is destroyed.
  detail::owned<detail::exchange_core> core_;
};

/// Turns a connected stream socket into a connected channel or queue pair, and exchanges values
/// with the peer. Each side makes one call.
///
///     VERBSPP_TRY(met, exchange<bounded_text<32>>(socket, std::move(prepared), memory, 5s));
///     met.channel, met.theirs
///
/// `mine`, which corresponds to `Theirs` at the peer, is one value, or a std::tuple of up to 16
/// values: numbers, `bool`, enumerations, `bounded_text`, `bounded_bytes`, handles of remote memory
/// with their rights, and structures for which `exchanged_name` is specialized. A peer that sends
/// different types or rights, or sends them in a different order, is refused. So is a peer with a
/// different application or version.
///
/// On success, the peer's queue pair is ready, the peer knows that this queue pair is ready, too,
/// and receive requests that were posted to `prepared` remain posted. On failure, `prepared` is
/// destroyed, and the reason is sent to the peer if it can be reached. No protocol can make both
/// ends certain that the last frame has arrived: if the network fails while that frame is in
/// flight, one end may have succeeded and the other failed. In that case, when the other end's
/// close arrives, the socket of the successful end reports a hang-up, and a channel that is tied to
/// the socket breaks.
///
/// If both ends connect channels, these are tied to the socket, unless an end has cleared
/// `exchange_options::ties_socket`: each channel has a duplicate of the socket. When one channel is
/// closed or destroyed, or its process exits, the other one breaks (`cancelled`), whether or not
/// the programs still have the socket. This takes at most 50 ms if the other channel waits, or if
/// its event loop polls it.
///
/// The caller owns the socket, which may be blocking or not. The exchange does not read any bytes
/// that follow it.
/// \errors as `exchange_session::start` and `poll`
template <class Theirs, class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const Mine& mine,
                            const wait_limit& limit, const exchange_options& options = {}) noexcept
    -> result<typename exchange_session<Theirs, End>::outcome> {
  using session = exchange_session<Theirs, End>;
  VERBSPP_TRY(started, session::start(file_descriptor, std::move(prepared), mine, limit, options));
  return std::move(started).run();
}
/// Like `exchange` above, but only this side sends values.
template <class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const Mine& mine,
                            const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<std::tuple<>>(file_descriptor, std::move(prepared), mine, limit, options);
}
/// Like `exchange` above, but only the peer sends values.
template <class Theirs, class End>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<Theirs>(file_descriptor, std::move(prepared), std::tuple<>(), limit, options);
}
/// Like `exchange` above, but no values are sent.
template <class End>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<std::tuple<>>(file_descriptor, std::move(prepared), std::tuple<>(), limit,
                                options);
}
/// Like `exchange` above, but connects a prepared channel in place. The channel may be new or
/// renewed. If the exchange fails, the channel is still prepared, or is broken or closed.
/// \returns the peer's values
template <class Theirs, class Mine>
[[nodiscard]] result<Theirs> exchange(int file_descriptor, channel& renewed, const Mine& mine,
                                      const wait_limit& limit,
                                      const exchange_options& options = {}) noexcept {
  return exchange<Theirs>(file_descriptor, detail::channel_in_place{&renewed}, mine, limit,
                          options);
}
/// Like `exchange` above, but connects a prepared channel in place, and no values are sent.
[[nodiscard]] result<void> exchange(int file_descriptor, channel& renewed, const wait_limit& limit,
                                    const exchange_options& options = {}) noexcept;

}  // namespace verbspp
