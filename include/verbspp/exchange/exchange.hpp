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

/// What an exchange gives: the connected channel, and what the peer sent along.
template <class Theirs>
struct exchanged_channel {
  verbspp::channel channel;
  Theirs theirs;
};

/// The same with a queue pair.
template <class Connected, class Theirs>
struct exchanged_queue_pair {
  Connected queue_pair;
  Theirs theirs;
};

namespace detail {

/// What an exchange needs to know of what it connects.
template <class End>
struct exchange_end {
  static constexpr bool exists = false;
};

template <>
struct exchange_end<prepared_channel> {
  static constexpr bool exists = true;
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

/// A channel that stays where it is. If the exchange fails when it is connected already, it is
/// closed.
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
  void keep() noexcept { channel_ = nullptr; }

 private:
  channel* channel_;
};

template <>
struct exchange_end<channel_in_place> {
  static constexpr bool exists = true;
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
concept ExchangeEnd =
    detail::because(detail::exchange_end<End>::exists,
                    "an exchange connects a prepared_channel, a channel that was renewed (by "
                    "reference), or a prepared queue pair of RC or UC");

/// One side of an exchange, which an event loop drives: from a connected stream socket to a
/// connected channel or queue pair, and the values of the peer's.
///
///     VERBSPP_TRY(session, (exchange_session<Theirs, prepared_channel>::start(
///                              socket, std::move(prepared), mine, 5s)));
///     for (;;) {
///       VERBSPP_TRY(is_done, session.advance());
///       if (is_done) break;
///       ... wait until socket is ready for session.events(), or session.deadline() has come
///     }
///     auto met = std::move(session).finish();
///
/// The socket stays the caller's, blocking or not, and has to be open as long as this lives; no
/// byte behind the exchange is read from it. A move-only owner; one that goes before it is done
/// tells the peer so. One that was moved from, or that has given its outcome, is empty, and refuses
/// everything (`invalid_input`). Thread rule: as a container.
template <class Theirs, class End>
  requires ExchangeEnd<End>
class exchange_session {
  using end = detail::exchange_end<End>;
  using values = detail::exchanged_values<Theirs>;

 public:
  /// What `finish` gives: `exchanged_channel<Theirs>`, or `exchanged_queue_pair<..., Theirs>`.
  using outcome = typename end::template outcome<Theirs>;

  /// Begins; nothing is sent before the first `advance`. `mine` is one value, or a std::tuple.
  /// \errors `invalid_input` for options that cannot travel; `resource_exhausted`
  template <class Mine>
  [[nodiscard]] static result<exchange_session> start(
      int file_descriptor, End prepared, const Mine& mine, const wait_limit& limit,
      const exchange_options& options = {}) noexcept {
    VERBSPP_TRY(core,
                detail::exchange_core::create(setup_of<Mine>(file_descriptor, options), limit));
    write_offer(*core.get(), prepared, mine);
    return continued(std::move(core), std::move(prepared));
  }

  /// For the library: what is exchanged.
  template <class Mine>
  [[nodiscard]] static detail::exchange_setup setup_of(int file_descriptor,
                                                       const exchange_options& options) noexcept {
    using sent = detail::exchanged_values<Mine>;
    static_assert(sent::largest <= 65536 && values::largest <= 65536,
                  "one side sends at most 64 KiB; send the rest through the channel");
    return {.file_descriptor = file_descriptor,
            .mine = sent::description,
            .theirs = values::description,
            .largest_mine = sent::largest,
            .largest_theirs = values::largest,
            .options = options};
  }
  /// For the library: what the peer gets.
  template <class Into, class Mine>
  static void write_offer(Into& into, const End& prepared, const Mine& mine) noexcept {
    detail::field_writer out(into.values());
    detail::exchanged_values<Mine>::write(out, mine);
    into.set_mine(end::local(prepared), out.size());
  }
  /// For the library: goes on with an exchange that has its offer.
  [[nodiscard]] static exchange_session continued(detail::owned<detail::exchange_core> core,
                                                  End prepared) noexcept {
    return exchange_session(std::move(core), std::move(prepared));
  }

  /// Does what can be done without waiting for the socket; the handshake of the queue pair, which
  /// takes system calls, among it.
  /// \returns whether it is done: the peer is connected, and knows that this side is
  /// \errors `mismatch` if the two ends do not fit, `timed_out` and `cancelled` at the limit,
  /// `not_connected` if the peer went or gave up, `invalid_input` for bytes that are none of an
  /// exchange; as `queue_pair::handshake`. The peer is told the reason, and what this side had is
  /// destroyed with the session; later calls give the same.
  [[nodiscard]] result<bool> advance() noexcept {
    if (!core_) return empty();
    for (;;) {
      VERBSPP_TRY(step, core_->advance());
      if (step == detail::exchange_step::waiting) return false;
      if (step == detail::exchange_step::done) return true;
      if (step == detail::exchange_step::greeted) {
        core_->offer();
        continue;
      }
      detail::field_reader in(core_->theirs());
      result<Theirs> read = values::read(in);
      if (!read.has_value()) return core_->refuse(read.assume_error());
      result<typename end::connected> connected = end::connect(prepared_, core_->remote());
      if (!connected.has_value()) return core_->refuse(connected.assume_error());
      theirs_.emplace(std::move(read).assume_value());
      connected_.emplace(std::move(connected).assume_value());
      core_->set_connected();
    }
  }
  /// What came of it, once `advance` has said that it is done.
  /// \errors `busy` if it is not; `invalid_input` if it was called before
  [[nodiscard]] result<outcome> finish() && noexcept {
    VERBSPP_TRY(is_done, advance());
    if (!is_done)
      return error(error_kind::busy, "exchange_session::finish",
                   "the exchange goes on: call advance until it says that it is done");
    core_ = {};
    return end::made(std::move(*connected_), std::move(*theirs_));
  }
  /// Waits for the socket, again and again, until it is done.
  /// \errors as `advance`
  [[nodiscard]] result<outcome> run() && noexcept {
    for (;;) {
      VERBSPP_TRY(is_done, advance());
      if (is_done) return std::move(*this).finish();
      VERBSPP_TRYV(core_->wait());
    }
  }
  /// Ends it early, and tells the peer so.
  void refuse(const error& why) noexcept {
    if (core_) core_->refuse(why);
  }

  /// -1 if the session is empty.
  [[nodiscard]] int file_descriptor() const noexcept {
    return core_ ? core_->file_descriptor() : -1;
  }
  /// What to wait for: POLLIN, or POLLIN and POLLOUT; 0 if the session is empty.
  [[nodiscard]] short events() const noexcept { return core_ ? core_->events() : short{0}; }
  /// When to call `advance` even if the socket is not ready.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return core_ ? core_->deadline() : (wait_limit::time_point::max)();
  }

 private:
  [[nodiscard]] static error empty() noexcept {
    return {error_kind::invalid_input, "exchange_session",
            "this session was moved from, or finish has returned its outcome already"};
  }
  exchange_session(detail::owned<detail::exchange_core> core, End&& prepared) noexcept
      : prepared_(std::move(prepared)), core_(std::move(core)) {}

  End prepared_;
  std::optional<typename end::connected> connected_{};
  std::optional<Theirs> theirs_{};
  // Goes first: the peer is told before what was connected goes.
  detail::owned<detail::exchange_core> core_;
};

/// From a connected stream socket to a connected channel or queue pair, and the values of the
/// peer's: one call on each side.
///
///     VERBSPP_TRY(met, exchange<bounded_text<32>>(socket, std::move(prepared), memory, 5s));
///     met.channel, met.theirs
///
/// `mine`, and what the peer calls `Theirs`, is one value or a std::tuple of up to 16: numbers,
/// `bounded_text`, `bounded_bytes`, handles of remote memory with their rights, and structures that
/// `exchanged_name` is specialized for. A peer that sends other types, other rights, or another
/// order is refused, as is one of another application or version.
///
/// When it succeeds the peer's queue pair is ready, and the peer knows that this one is; receives
/// that were posted to `prepared` are kept. When it fails, `prepared` is gone, and the peer was
/// told why, if it can be reached. There is no last word that both ends know to have arrived: where
/// the network fails as the last frame travels, one end may have succeeded and the other not; then
/// the socket of the one that did is hung up as soon as the other closes its own.
/// `channel.watch(socket)` lets the channel see that.
///
/// The socket stays the caller's, blocking or not; no byte behind the exchange is read from it.
/// \errors as `exchange_session::start` and `advance`
template <class Theirs, class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const Mine& mine,
                            const wait_limit& limit, const exchange_options& options = {}) noexcept
    -> result<typename exchange_session<Theirs, End>::outcome> {
  using session = exchange_session<Theirs, End>;
  VERBSPP_TRY(started, session::start(file_descriptor, std::move(prepared), mine, limit, options));
  return std::move(started).run();
}
/// The same where only the peer gets values.
template <class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const Mine& mine,
                            const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<std::tuple<>>(file_descriptor, std::move(prepared), mine, limit, options);
}
/// The same where only this side does.
template <class Theirs, class End>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<Theirs>(file_descriptor, std::move(prepared), std::tuple<>(), limit, options);
}
/// The same without values.
template <class End>
  requires ExchangeEnd<End>
[[nodiscard]] auto exchange(int file_descriptor, End prepared, const wait_limit& limit,
                            const exchange_options& options = {}) noexcept {
  return exchange<std::tuple<>>(file_descriptor, std::move(prepared), std::tuple<>(), limit,
                                options);
}
/// The same with a channel that stays where it is: one that was renewed, or is prepared at first.
/// If it fails before the two ends are connected, the channel is prepared still; later, it is
/// broken or closed.
/// \returns the values of the peer's
template <class Theirs, class Mine>
[[nodiscard]] result<Theirs> exchange(int file_descriptor, channel& renewed, const Mine& mine,
                                      const wait_limit& limit,
                                      const exchange_options& options = {}) noexcept {
  return exchange<Theirs>(file_descriptor, detail::channel_in_place{&renewed}, mine, limit,
                          options);
}
/// The same without values.
[[nodiscard]] result<void> exchange(int file_descriptor, channel& renewed, const wait_limit& limit,
                                    const exchange_options& options = {}) noexcept;

}  // namespace verbspp
