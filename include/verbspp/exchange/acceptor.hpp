// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/exchange/acceptor_options.hpp>
#include <verbspp/exchange/detail/acceptor_core.hpp>
#include <verbspp/exchange/exchange.hpp>
#include <verbspp/exchange/exchanged_value.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

/// An offer to a client: the channel or queue pair that was prepared for it, and a value or
/// std::tuple to send to it. It may also contain an object that the acceptor keeps until the
/// program takes the client, such as an inbox that was opened before the handshake.
template <class End, class Mine, class Kept = void>
struct exchange_offer {
  End prepared;
  Mine mine;
  Kept kept;
};
template <class End, class Mine>
struct exchange_offer<End, Mine, void> {
  End prepared;
  Mine mine;
};
template <class End, class Mine>
exchange_offer(End, Mine) -> exchange_offer<End, Mine>;
template <class End, class Mine, class Kept>
exchange_offer(End, Mine, Kept) -> exchange_offer<End, Mine, Kept>;

/// A connected client, or the peer of a meeting (`meet`): its socket, the result of the exchange,
/// and the object that the acceptor has kept for the client. The program now owns the socket and
/// may close it, because a channel that is tied to the socket has a duplicate
/// (`exchange_options::ties_socket`).
template <class Outcome, class Kept = void>
struct accepted_exchange {
  tcp_socket socket;
  Outcome met;
  Kept kept;
};
template <class Outcome>
struct accepted_exchange<Outcome, void> {
  tcp_socket socket;
  Outcome met;
};

namespace detail {

template <class Offer>
struct offer_parts {
  static constexpr bool exists = false;
};
template <class End, class Mine, class Kept>
struct offer_parts<result<exchange_offer<End, Mine, Kept>>> {
  static constexpr bool exists = true;
  using end = End;
  using mine = Mine;
  using kept = Kept;
};

/// A function that an acceptor calls for each client that has introduced itself.
template <class Prepare>
concept PreparesOffers =
    because(offer_parts<std::invoke_result_t<Prepare&>>::exists,
            "the function that an acceptor calls for each client has to return a "
            "verbspp::result<exchange_offer<...>>");

template <class Theirs, class Prepare>
class typed_acceptor final : public acceptor_core {
  using parts = offer_parts<std::invoke_result_t<Prepare&>>;
  using end = exchange_end<typename parts::end>;
  using sent = exchanged_values<typename parts::mine>;
  using values = exchanged_values<Theirs>;

 public:
  using accepted = accepted_exchange<typename end::template outcome<Theirs>, typename parts::kept>;

  typed_acceptor(Prepare&& prepare, const acceptor_options& options) noexcept
      : acceptor_core(options, {.mine = sent::description,
                                .theirs = values::description,
                                .largest_mine = sent::largest,
                                .largest_theirs = values::largest,
                                .options = options.exchange,
                                .connects_channel = end::is_channel}),
        prepare_(std::move(prepare)) {}
  typed_acceptor(const typed_acceptor&) = delete;
  typed_acceptor& operator=(const typed_acceptor&) = delete;
  ~typed_acceptor() override { stop(); }

  [[nodiscard]] result<void> open_for(tcp_listener listener, std::uint32_t clients) noexcept {
    VERBSPP_TRYV(open(std::move(listener)));  // checks the number of clients
    places_ = owned<client_end[]>(new (std::nothrow) client_end[clients]);
    if (!places_) return error::from_errno(ENOMEM, "exchange_acceptor");
    return success();
  }
  [[nodiscard]] std::optional<accepted> take() noexcept {
    const std::optional<std::uint32_t> place = next_done();
    if (!place) return std::nullopt;
    client_end& done = places_.get()[*place];
    if constexpr (end::is_channel) done.connected->tie(std::move(done.socket));
    if constexpr (is_channel) done.connected->core().release_arrivals();
    std::optional<accepted> taken([&] {
      auto met = end::made(std::move(*done.connected), std::move(*done.theirs));
      if constexpr (keeps)
        return accepted{take_socket(*place), std::move(met), std::move(*done.kept)};
      else
        return accepted{take_socket(*place), std::move(met)};
    }());
    drop(*place);
    free_place(*place);
    watch();
    return taken;
  }

 private:
  static constexpr bool is_channel = std::is_same_v<typename parts::end, prepared_channel>;
  static constexpr bool keeps = !std::is_void_v<typename parts::kept>;

  struct client_end {
    std::optional<typename parts::end> prepared{};
    std::optional<typename end::connected> connected{};
    std::optional<Theirs> theirs{};
    detail::tied_socket socket{};
    std::optional<std::conditional_t<keeps, typename parts::kept, std::nullptr_t>> kept{};
  };

  result<void> prepare(std::uint32_t place, exchange_core& core) noexcept override {
    VERBSPP_TRY(offer, prepare_());
    field_writer out(core.values());
    sent::write(out, offer.mine);
    core.set_mine(end::local(offer.prepared), out.size());
    // A hub holds the client's messages at least until the program takes the channel.
    if constexpr (is_channel) offer.prepared.core().hold_arrivals();
    places_.get()[place].prepared.emplace(std::move(offer.prepared));
    if constexpr (keeps) places_.get()[place].kept.emplace(std::move(offer.kept));
    return success();
  }
  result<void> connect(std::uint32_t place, exchange_core& core) noexcept override {
    client_end& joining = places_.get()[place];
    field_reader in(core.theirs());
    VERBSPP_TRY(read, values::read(in));
    VERBSPP_TRY(socket, core.socket_to_tie());
    VERBSPP_TRY(connected, end::connect(*joining.prepared, core.remote()));
    joining.socket = std::move(socket);
    joining.theirs.emplace(std::move(read));
    joining.connected.emplace(std::move(connected));
    return success();
  }
  void drop(std::uint32_t place) noexcept override {
    client_end& leaving = places_.get()[place];
    leaving.prepared.reset();
    leaving.connected.reset();
    leaving.theirs.reset();
    leaving.socket = {};
    leaving.kept.reset();
  }

  Prepare prepare_;
  owned<client_end[]> places_{};
};

}  // namespace detail

/// Accepts clients through a listener, and performs an exchange with each. Up to
/// `acceptor_options::clients` exchanges proceed at the same time, of which up to
/// `acceptor_options::handshakes` are in the handshake. Below these maximums, no client waits for a
/// slow or silent one.
///
///     VERBSPP_TRY(listener, tcp_listener::open("4711"));
///     VERBSPP_TRY(clients, accept_exchanges<bounded_text<32>>(
///                              std::move(listener), [&]() noexcept -> result<...> {
///                                VERBSPP_TRY(prepared, domain.build_channel().build());
///                                return exchange_offer{std::move(prepared), memory};
///                              }));
///     for (;;) {
///       VERBSPP_TRY(client, clients.next(wait_limit::forever()));
///       client.socket, client.met.channel, client.met.theirs
///     }
///
/// The acceptor calls the program's function for each client that has introduced itself, as soon as
/// fewer than `acceptor_options::handshakes` other clients are in their handshake. If the function
/// offers a channel of a hub, messages that arrive on that channel are held until the program takes
/// the client, or, if the hub has a table (`hub_clients`), until the client is added to it. A
/// program that also waits for other events waits for `file_descriptor`, calls `poll`, and then
/// calls `take` until it returns nothing. The acceptor has no thread: it works only during these
/// calls.
///
/// A move-only owner. Destroying an acceptor refuses the clients whose exchanges are in progress,
/// and closes the connections of clients that the program has not taken. A moved-from acceptor has
/// no clients, and its waits fail (`invalid_input`). Thread rule: as for a standard container.
template <class Theirs, class Prepare>
class exchange_acceptor {
  using core = detail::typed_acceptor<Theirs, Prepare>;

 public:
  using accepted = typename core::accepted;

  /// Used by `accept_exchanges`.
  explicit exchange_acceptor(detail::owned<core> made) noexcept : core_(std::move(made)) {}

  /// Continues all exchanges as far as possible without waiting. This includes the handshakes of
  /// queue pairs, which make system calls. If a call leaves work for the next one, the descriptor
  /// stays readable.
  /// \errors the errors of epoll; `busy` if the function that prepares clients calls `poll`;
  /// `invalid_input` if the acceptor was moved from. The failure of a client is not an error of
  /// this call; see `last_failure`.
  [[nodiscard]] result<void> poll() noexcept {
    if (!core_) return empty();
    return core_->poll();
  }
  /// Returns the connected client that has waited longest to be taken, or nothing if there is no
  /// connected client.
  [[nodiscard]] std::optional<accepted> take() noexcept {
    if (!core_) return std::nullopt;
    return core_->take();
  }
  /// Waits for the next connected client.
  /// \errors `timed_out` and `cancelled` when the limit is reached; `not_connected` if the acceptor
  /// is stopped and all clients were taken; as `poll`
  [[nodiscard]] result<accepted> next(const wait_limit& limit) noexcept {
    for (;;) {
      VERBSPP_TRYV(poll());
      if (std::optional<accepted> taken = take()) return std::move(*taken);
      VERBSPP_TRYV(core_->wait(limit));
    }
  }

  /// Closes the listener, and refuses the clients whose exchanges are in progress. An exchange that
  /// lacks only the client's last frame succeeds if that frame has arrived. The program can still
  /// take connected clients. The function that prepares a client may also call `stop`; the client
  /// that it is preparing is then refused, too.
  void stop() noexcept {
    if (core_) core_->stop();
  }
  [[nodiscard]] bool is_stopped() const noexcept { return !core_ || core_->is_stopped(); }

  /// The descriptor for epoll and poll, which is readable when `poll` has work to do, for
  /// instance because a time limit has expired. A moved-from acceptor returns -1.
  [[nodiscard]] int file_descriptor() const noexcept {
    return core_ ? core_->file_descriptor() : -1;
  }
  /// Has no effect, because the descriptor needs no notification request (see `EventSource`).
  /// \returns true if a connected client is ready to be taken
  /// \errors `invalid_input` if the acceptor was moved from
  [[nodiscard]] result<bool> request_notification() noexcept {
    if (!core_) return empty();
    return core_->has_done();
  }
  /// Returns the maximum time point, because the descriptor also reports expired time limits.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }
  /// The number of exchanges in progress.
  [[nodiscard]] std::uint32_t under_way() const noexcept { return core_ ? core_->under_way() : 0; }
  /// The number of failures: exchanges that have failed, and failed attempts to accept a client,
  /// for instance because no file descriptor was left.
  [[nodiscard]] std::uint64_t failed() const noexcept { return core_ ? core_->failed() : 0; }
  /// The error of the last failure; empty if there was none.
  [[nodiscard]] const std::optional<error>& last_failure() const noexcept {
    static constexpr std::optional<error> none;
    return core_ ? core_->last_failure() : none;
  }
  /// The IP address of the client at the last failure. Zero if there was no failure, or the address
  /// is unknown, for instance because the client could not be accepted, or did not connect by IP.
  /// An IPv4 address has the form ::ffff:a.b.c.d.
  [[nodiscard]] gid last_failed_client() const noexcept {
    return core_ ? core_->last_failed_client() : gid{};
  }

 private:
  [[nodiscard]] static error empty() noexcept {
    return {error_kind::invalid_input, "exchange_acceptor", "this acceptor was moved from"};
  }

  detail::owned<core> core_;
};

/// Starts to accept the clients of a listener. For each client, `prepare()` returns the object to
/// connect and the values to send, as a `result<exchange_offer<...>>`. If `prepare` fails, the
/// client is refused with that error.
/// \errors `invalid_input` if an option is not valid, or the listener is not open; `not_supported`
/// for a secret if the library was built without libcrypto; `resource_exhausted`
template <class Theirs, class Prepare>
  requires detail::PreparesOffers<Prepare>
[[nodiscard]] result<exchange_acceptor<Theirs, Prepare>> accept_exchanges(
    tcp_listener listener, Prepare prepare, const acceptor_options& options = {}) noexcept {
  using core = detail::typed_acceptor<Theirs, Prepare>;
  detail::owned<core> made(new (std::nothrow) core(std::move(prepare), options));
  if (!made) return error::from_errno(ENOMEM, "exchange_acceptor");
  VERBSPP_TRYV(made->open_for(std::move(listener), options.clients));
  return exchange_acceptor<Theirs, Prepare>(std::move(made));
}

}  // namespace verbspp
