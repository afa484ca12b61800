// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/blocking_operations.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/core/channel_failure.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

class prepared_channel;

/// A connection to one peer. It owns its queue pair and, unless it belongs to a hub, its completion
/// queue. It guards the memory of its requests while they are in flight.
///
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     ... send prepared.endpoint() to the peer, and receive the endpoint of the peer: remote
///     VERBSPP_TRY(channel, std::move(prepared).handshake(remote));
///     VERBSPP_TRYV(channel.send({.elements = buffer.gather().value()}));
///
/// A channel offers four ways to post requests. The functions `post_send`, `post_write` and so on
/// return a handle, a `pending`. `scope` returns when all requests that were posted through it have
/// finished. `send`, `receive`, `write`, `read`, `compare_and_swap` and `fetch_and_add` post one
/// request and wait for it. `async_send` and so on do the same in a coroutine.
///
/// Every wait has a limit, its own or the channel's default limit. If a request does not finish
/// within the limit, the channel breaks: its queue pair goes to ERR, all outstanding requests are
/// collected, and the program may reuse their memory. On a working device, this takes at most 100
/// ms. The same happens if a request fails. Posting to a broken channel returns the cause as an
/// error. `renew` prepares the channel, with the same parameters, for another handshake.
///
/// A move-only owner, with one type for all of its states. A channel that was default constructed
/// or moved from is empty, and refuses all requests (`not_connected`). Destroying a channel, or
/// assigning to it, aborts outstanding requests, and waits until the device no longer accesses
/// their memory; the handles of those that have not succeeded then return an error. The
/// acknowledgement of a message that has just arrived may also be lost, so that the peer's send
/// fails. So let the peer report by other means that it has finished, before you destroy the
/// channel. Thread rule: only one thread at a time may use the channel, its handles and its scopes,
/// which debug builds assert; the channel may move between threads.
class channel : public posting_operations<channel>,
                public blocking_operations<channel>,
                public async_operations<channel>,
                public lease_operations<channel> {
 public:
  channel() noexcept = default;
  /// Turns a prepared channel into a channel that `handshake` connects. This lets a program use one
  /// object, and the same code, for the first connection and for those that `renew` prepares.
  explicit channel(prepared_channel&& prepared) noexcept;
  /// Used by the library only.
  explicit channel(detail::channel_core* core) noexcept : core_(core) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  channel(channel&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  channel& operator=(channel&& other) noexcept {
    if (this != &other) {
      abandon();
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }
  ~channel() { abandon(); }

  /// Calls `function` with a `channel_scope&`, and returns when all requests that were posted
  /// through the scope have finished, even if the function returns an error or throws. The limit
  /// applies to waits for room in a queue, to the destruction of handles that own memory, and to
  /// the wait at the end. A given limit covers all of these waits together; without one, the
  /// channel's default limit applies to each of them.
  /// \returns the function's result (void, a value, or a result's value), or a `scope_error`, which
  /// separates the function's own error from the errors of requests whose results were not taken
  template <class Function>
  VERBSPP_DATA_PATH auto scope(Function&& function,
                               const wait_limit& limit = detail::default_limit) {
    channel_scope opened(core(), limit);
    return detail::run(opened, function, false);
  }
  /// Like `scope`, but for functions that take the result of every request themselves: a result
  /// that was not taken counts as an error.
  template <class Function>
  VERBSPP_DATA_PATH auto manual_scope(Function&& function,
                                      const wait_limit& limit = detail::default_limit) {
    channel_scope opened(core(), limit);
    return detail::run(opened, function, true);
  }
  /// Like `scope`, but calls `function` with a `channel_stream&`, which posts requests without
  /// handles. It signals only one out of every `stream_options::signal_every` RDMA
  /// writes and reads, and all other requests.
  template <class Function>
  VERBSPP_DATA_PATH auto stream(Function&& function, stream_options options = {},
                                const wait_limit& limit = detail::default_limit) {
    channel_stream opened(core(), limit, options);
    return detail::run(opened, function, false);
  }

  /// Processes available completions, so that handles have their results; without a hub, at most 16
  /// per call, unless it breaks the channel. Then calls the continuations of requests that have
  /// finished, and resumes the coroutines that await them. Waits for requests only if it breaks the
  /// channel. Handles do not need this call, because they poll when they are asked for a result,
  /// but continuations and coroutines run only here, in `channel_hub::poll`, and when the
  /// connection is closed, renewed or destroyed.
  ///
  /// A channel of a hub processes the completions that the hub has found for it, and polls the
  /// hub's queue only if there are none. If the program waits for `file_descriptor`, `poll` also
  /// reads the events that end a wait, and breaks the channel as `wait` does. Otherwise, it reads
  /// no events: a loop that only polls does not notice that the peer, a port or the device has
  /// failed until a request fails. `poll` also breaks the channel if the limit of a request's
  /// continuation was reached.
  void poll() noexcept;
  /// Waits for an event, in the channel's `wait_mode`: a result that was not taken from its handle,
  /// a message that the inbox has not returned, a stop request for a continuation or coroutine, or
  /// the failure of the channel. It returns immediately as long as such an event is pending, even
  /// if another call has collected the completion. Call `poll` to handle a stop request; one whose
  /// token has no callbacks is not such an event. While requests are outstanding, it also returns
  /// once for completions whose results were taken already, or that have no handle. While a scope
  /// has requests in flight without handles, it may return only once for a result that was not
  /// taken. A message that arrives in a hub's pool might not end the wait: wait for the inbox or
  /// the hub instead. Reaching the limit does not break the channel, but a failure that the device
  /// reports, or an event on the descriptor that the channel watches, does.
  /// \param file_descriptor one of the program's own descriptors, which also ends the wait when it
  /// becomes readable or is hung up, without any other effect; a negative number means none
  /// \returns the cause of the wait's end, which is `completions` if the channel broke
  /// \errors `not_connected` if the channel is empty; `invalid_input` if a descriptor is not open;
  /// `driver` if the device no longer exists; `resource_exhausted`
  [[nodiscard]] result<wait_end> wait(const wait_limit& limit, int file_descriptor = -1) noexcept;
  /// The descriptor for event loops (`EventSource`). After `request_notification`, it becomes
  /// readable when a request has finished, the watched descriptor or tied socket has an event, a
  /// stop was requested for a continuation or coroutine (through a token with callbacks), or the
  /// device has reported a failure. -1 if the channel is empty, only spins or belongs to a hub, or
  /// if the descriptor cannot be set up. For channels of a hub, wait for the hub's descriptor
  /// instead.
  ///
  /// The descriptor is created when it is first needed, and uses two descriptors of the process. It
  /// stays the same when the channel is moved or renewed.
  ///
  /// In an event loop: 1. Call `request_notification`. 2. If it has returned false, sleep until
  /// this descriptor is readable, or until the `deadline`. 3. Call `poll`, check the handles, and
  /// start over.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Arms the descriptor, so that it becomes readable at the next event. Events that are already
  /// pending are read.
  /// \returns true if there already is an event for which `wait` would return immediately; the
  /// descriptor does not always become readable for such an event
  /// \errors `not_supported` if the channel only spins, or belongs to a hub; `not_connected` if the
  /// channel is empty; `permission` if epoll does not accept the watched descriptor, such as one of
  /// a regular file; `driver` if that descriptor is not open, or if the device no longer exists;
  /// `resource_exhausted`
  [[nodiscard]] result<bool> request_notification() noexcept;
  /// The time by which the program has to call `poll`, which then checks the limits of
  /// continuations; the maximum if there is no such time. Once an event of the watched descriptor
  /// was read, the deadline is at most 50 ms later, because completions may still arrive after a
  /// hang-up; at the deadline, `poll` breaks the channel.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;
  /// Watches one of the program's own descriptors, such as the TCP socket over which the program
  /// found the peer. When the descriptor becomes readable, or is hung up, waits end and the channel
  /// breaks (`cancelled`). If the program still reads from the socket, watch for `hang_up` only.
  /// The program still owns the descriptor, and must keep it open while it is watched. A negative
  /// number means none, which is the default. After an exchange, the channel watches its own
  /// duplicate of the socket (`exchange_options::ties_socket`).
  void watch(int file_descriptor, watch_for what = watch_for::data_or_hang_up) noexcept;

  /// Closes the connection: brings the queue pair to ERR, collects all outstanding requests, and
  /// destroys the queue pair. Requests that the device has not flushed within the limit end when
  /// the queue pair is destroyed. The peer is notified if an exchange has tied the channel to a
  /// socket, and no other channel of this process is tied to it (`exchange_options::ties_socket`).
  /// \errors those of `ibv_destroy_qp`: the device keeps the queue pair, and memory that its
  /// requests own or share is never freed
  result<void> close(const wait_limit& limit = std::chrono::milliseconds(100)) noexcept;
  /// Prepares the next connection: closes this one, and creates a queue pair with the same
  /// parameters. After that, the channel accepts receive requests, unless its hub posts them. It
  /// also has a new endpoint, whose generation shows the peer that the endpoint is newer than the
  /// last one. Before the next connection is prepared, the coroutines and continuations that wait
  /// for the closed one are resumed and called.
  /// \errors as `close` and `channel_builder::build`; `not_connected` if the channel is empty, or
  /// if one of them has destroyed it
  [[nodiscard]] result<struct endpoint> renew() noexcept;
  /// Connects a prepared channel, which may be new or renewed. If the queue pair's handshake fails,
  /// the channel is broken; other errors leave it unchanged.
  /// \errors as `queue_pair::handshake`; `mismatch` for an endpoint of an earlier connection;
  /// `busy` if the channel is connected; `not_connected` if it is empty, or was not renewed after
  /// it broke or was closed
  [[nodiscard]] result<void> handshake(const struct endpoint& remote) noexcept;
  /// As above, but connects to a peer that a connection manager has found.
  [[nodiscard]] result<void> handshake(const managed_attributes& by) noexcept;

  /// Moves the queue pair to ERR, and returns immediately. The outstanding requests will be
  /// flushed, as will those that are posted later, and a flushed request breaks the channel. A
  /// program that destroys many channels of a hub with a pool should stop all of them first: the
  /// destruction of such a channel waits until a millisecond after the stop, because the device may
  /// return shared receives until then. Groups and `hub_clients` do this.
  void stop() const noexcept;
  /// Used by the library only: watches the socket over which the endpoints were exchanged, and
  /// notifies the peer over it when the channel ends.
  void tie(detail::tied_socket&& socket) noexcept;

  [[nodiscard]] channel_state state() const noexcept {
    return is_empty() ? channel_state::empty : core().state();
  }
  /// This side's endpoint, which the program sends to the peer; default constructed if the channel
  /// is empty.
  [[nodiscard]] struct endpoint endpoint() const noexcept;
  /// The capacities that the device granted.
  [[nodiscard]] queue_pair_capacities capacities() const noexcept;
  /// The channel's id in its hub, which the hub's arrivals also contain. The generation of the id
  /// is 0 if the channel is in no hub.
  [[nodiscard]] channel_id id() const noexcept { return core().id(); }
  [[nodiscard]] bool is_connected() const noexcept { return state() == channel_state::connected; }
  /// The reason why the channel is broken or closed; empty if it is neither.
  [[nodiscard]] std::optional<channel_failure> failure() const noexcept;
  /// The number of requests that are not known to have finished. It is 0 once a handle or a
  /// blocking call has returned the failure of a request of this connection, since both collect all
  /// outstanding requests first. `poll` collects only the available completions of a broken
  /// channel, so it may have to be called again.
  [[nodiscard]] std::uint32_t outstanding() const noexcept;
  /// The queue pair; null if the channel is empty, or if its queue pair was destroyed because the
  /// channel was closed or broke.
  [[nodiscard]] ibv_qp* native_handle() const noexcept;
  /// The completion queue; null if the channel is empty.
  [[nodiscard]] ibv_cq* native_completion_queue() const noexcept;
  /// Used by the library only: returns the channel's core. For an empty channel, this is a core
  /// that refuses all operations.
  [[nodiscard]] VERBSPP_DATA_PATH detail::channel_core& core() const noexcept {
    return core_ != nullptr ? *core_ : detail::channel_core::empty();
  }

  friend std::ostream& operator<<(std::ostream& out, const channel& channel);

 private:
  friend posting_operations<channel>;
  using borrowing_handle = pending<>;
  using keeping_handle = kept_pending;

  [[nodiscard]] VERBSPP_DATA_PATH static detail::posting_terms terms() noexcept { return {}; }
  [[nodiscard]] bool is_empty() const noexcept { return core_ == nullptr; }
  void abandon() noexcept {
    if (core_ != nullptr) core_->abandon();
  }

  detail::channel_core* core_ = nullptr;
};

/// A channel before its first handshake. It has an endpoint for the peer, and accepts receive
/// requests, so that they are ready for the peer's first messages. If its hub has a pool, the hub
/// posts the receives instead.
///
/// A move-only owner. Thread rule: as for a channel.
class prepared_channel : public posting_operations<prepared_channel, queue_pair_state::init> {
 public:
  /// Used by the library only.
  explicit prepared_channel(detail::channel_core* core) noexcept : inner_(core) {}

  /// Connects to the peer. Consumes the prepared channel: on failure it is destroyed, together with
  /// its receives, whose handles then return an error.
  /// \errors as `queue_pair::handshake`; `not_connected` if it is empty or broken
  [[nodiscard]] result<channel> handshake(const struct endpoint& remote) && noexcept;
  /// As above, but connects to a peer that a connection manager has found.
  [[nodiscard]] result<channel> handshake(const managed_attributes& by) && noexcept;
  template <class Nothing = void>
      result<channel> handshake(const struct endpoint&) &
      VERBSPP_DETAIL_REFUSED(std::is_void_v<Nothing>,
                             "the handshake consumes the prepared channel: write "
                             "std::move(prepared).handshake(remote_endpoint)");

  // The functions of a channel that can be called before the handshake.

  [[nodiscard]] struct endpoint endpoint() const noexcept { return inner_.endpoint(); }
  [[nodiscard]] queue_pair_capacities capacities() const noexcept { return inner_.capacities(); }
  [[nodiscard]] ibv_qp* native_handle() const noexcept { return inner_.native_handle(); }
  void stop() const noexcept { inner_.stop(); }
  void tie(detail::tied_socket&& socket) noexcept { inner_.tie(std::move(socket)); }
  [[nodiscard]] VERBSPP_DATA_PATH detail::channel_core& core() const noexcept {
    return inner_.core();
  }
  friend std::ostream& operator<<(std::ostream& out, const prepared_channel& prepared) {
    return out << prepared.inner_;
  }

 private:
  friend channel;
  friend posting_operations<prepared_channel, queue_pair_state::init>;
  using borrowing_handle = pending<>;
  using keeping_handle = kept_pending;

  [[nodiscard]] VERBSPP_DATA_PATH static detail::posting_terms terms() noexcept { return {}; }

  channel inner_;
};

}  // namespace verbspp
