// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/blocking_operations.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/channel_failure.hpp>
#include <verbspp/channel/channel_operations.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

class inbox;
class prepared_channel;

/// How a stream is signaled.
struct stream_options {
  /// The device tells of every k-th request; 1 and more. At most half the send queue's length.
  std::uint32_t signal_every = 16;
};

namespace detail {

struct channel_access;
struct hub_turn;

/// The owner of a channel's core, before the first handshake and after; or empty.
class core_owner {
 public:
  core_owner(const core_owner&) = delete;
  core_owner& operator=(const core_owner&) = delete;

  /// This end, for the peer; an empty one if there is no channel.
  [[nodiscard]] struct endpoint endpoint() const noexcept;
  /// The capacities that the device granted.
  [[nodiscard]] queue_pair_capacities capacities() const noexcept;
  /// Null if there is none: empty, broken beyond repair, closed.
  [[nodiscard]] ibv_qp* native_handle() const noexcept;

  /// For the library: keeps arrivals of a channel of a hub until `release_arrivals`.
  void hold_arrivals() const noexcept;
  void release_arrivals() const noexcept;

  friend std::ostream& operator<<(std::ostream& out, const core_owner& owner) {
    owner.print(out);
    return out;
  }

 protected:
  using borrowing_handle = pending<>;
  using keeping_handle = kept_pending;

  core_owner() noexcept = default;
  explicit core_owner(channel_core* core) noexcept : core_(core) {}
  core_owner(core_owner&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  core_owner& operator=(core_owner&& other) noexcept {
    if (this != &other) {
      abandon();
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }
  ~core_owner() { abandon(); }

  [[nodiscard]] bool is_empty() const noexcept { return core_ == nullptr; }
  /// The core of an empty owner refuses everything.
  [[nodiscard]] VERBSPP_DATA_PATH channel_core& core() const noexcept {
    return core_ != nullptr ? *core_ : channel_core::empty();
  }
  [[nodiscard]] VERBSPP_DATA_PATH static posting_terms terms() noexcept { return {}; }

 private:
  void abandon() noexcept {
    if (core_ != nullptr) core_->abandon();
  }
  void print(std::ostream& out) const;

  channel_core* core_ = nullptr;
};

}  // namespace detail

/// A connection to one peer, which owns its queue pair and its completion queue, and ties memory to
/// the work that uses it.
///
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     ... give prepared.endpoint() to the peer, and get the peer's
///     VERBSPP_TRY(channel, std::move(prepared).handshake(remote));
///     VERBSPP_TRYV(channel.send({.elements = buffer.gather().value()}));
///
/// Three levels, each on the one before: `post_*` give a handle, a `pending`; `scope` sees to it
/// that all that its function posts has finished when it returns; `send`, `receive`, `write`,
/// `read`, `compare_and_swap` and `fetch_and_add` post one request and wait for it.
///
/// Nothing waits for ever: every wait has a limit, its own or the channel's default one. When it
/// fires, the connection is given up: ERR, everything outstanding is collected, and its memory is
/// the program's again, within 100 ms on a device that works. The same happens when a request
/// fails. A broken channel says so to every call, and why; `renew` prepares the same channel, with
/// the same parameters, for another handshake.
///
/// A move-only owner, and one type in all of its states: a default constructed one is empty, and
/// refuses everything (`not_connected`), as does one that was moved from. Destroying it, or
/// assigning to it, gives up what is outstanding, waiting until the device has let go; handles that
/// still exist then say so. It takes with it what it owes the peer, too: the acknowledgement of a
/// message that has just arrived, without which the peer's send fails. So let the peer say that it
/// has finished, by other means, before the channel goes. Thread rule: as a container: one thread
/// at a time for it, its handles and its scopes, which debug builds assert; it may go from thread
/// to thread.
class channel : public detail::core_owner,
                public posting_operations<channel>,
                public blocking_operations<channel>,
                public lease_operations<channel> {
 public:
  channel() noexcept = default;
  /// What is prepared, as a channel, which `handshake` connects: for those who have one object and
  /// one way for its first connection and those that `renew` prepares.
  explicit channel(prepared_channel&& prepared) noexcept;
  /// For the library.
  explicit channel(detail::channel_core* core) noexcept : core_owner(core) {}

  /// Calls `function` with a `channel_scope&`, and returns when all that was posted through it has
  /// finished: also when it returns an error, or throws. The limit is that of the scope as a whole:
  /// of each wait in it, and of the end.
  /// \returns what the function returns (void, a value, or a result's value), or a `scope_error`,
  /// which tells the function's own error from those of work whose result nobody took
  template <class Function>
  VERBSPP_DATA_PATH auto scope(Function&& function,
                               const wait_limit& limit = detail::default_limit) {
    channel_scope opened(core(), detail::given(limit));
    return detail::run(opened, function, false);
  }
  /// The same for those who take the result of every request themselves: that some was not taken is
  /// an error, too.
  template <class Function>
  VERBSPP_DATA_PATH auto manual_scope(Function&& function,
                                      const wait_limit& limit = detail::default_limit) {
    channel_scope opened(core(), detail::given(limit));
    return detail::run(opened, function, true);
  }
  /// Calls `function` with a `channel_stream&`: as a scope, for requests that nobody holds handles
  /// of, of which the device tells every k-th only.
  template <class Function>
  VERBSPP_DATA_PATH auto stream(Function&& function, stream_options options = {},
                                const wait_limit& limit = detail::default_limit) {
    channel_stream opened(core(), detail::given(limit), every(options));
    return detail::run(opened, function, false);
  }

  /// Takes the completions that are there; handles have their results then. Never blocks. Handles
  /// look for themselves: this is for loops that wait for something else.
  void poll() noexcept;
  /// Waits for news, as the channel's `wait_mode` says: a result that no handle has taken, a
  /// message that its inbox has not handed out, or the channel's failure. It ends at once while
  /// there is such news, whichever call has collected it. While requests are outstanding, it also
  /// ends once for completions whose results were taken, or that have no handle. At the limit,
  /// nothing is given up. What the channel watches may break it during the wait.
  /// \param file_descriptor of the program's, which also ends the wait by being readable, or hung
  /// up, and nothing besides; below 0 for none
  /// \returns what ended it
  /// \errors `not_connected` if the channel is empty; `driver` if the device is gone
  [[nodiscard]] result<wait_end> wait(const wait_limit& limit, int file_descriptor = -1) noexcept;
  /// For epoll and poll, of a channel that sleeps: readable after `request_notification`, when a
  /// request has finished. -1 of one that only spins.
  ///
  /// In an event loop: 1. `request_notification`; if it returns true, look at the handles, and
  /// begin anew. 2. Sleep until this is readable. 3. `poll`, look at the handles.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Asks for the descriptor to become readable with the next request that finishes.
  /// \returns whether there is news already, as for `wait`, for which it may not become readable
  /// \errors `not_supported` of a channel that only spins; `not_connected` if the channel is empty
  [[nodiscard]] result<bool> request_notification() noexcept;
  /// Watches a descriptor of the program's, such as the TCP socket by which the peer was found:
  /// when it becomes readable, or is hung up, waits end, and the connection with them
  /// (`cancelled`). A socket on which the program goes on talking is watched for `hang_up` only. It
  /// stays the program's, which has to keep it open as long; below 0: none, as at first.
  void watch(int file_descriptor, watch_for what = watch_for::data_or_hang_up) noexcept;

  /// Ends the connection: ERR, collects all that is outstanding, and destroys the queue pair. What
  /// the device has not given back when the limit comes is taken back by that.
  /// \errors those of `ibv_destroy_qp`: the device keeps the queue pair, and the memory of its work
  /// is never freed
  result<void> close(const wait_limit& limit = std::chrono::milliseconds(100)) noexcept;
  /// Prepares the next connection: closes this one, if it is not broken already, and makes a queue
  /// pair with the same parameters. Then it takes receives, and has a fresh endpoint, whose
  /// generation tells the peer that it is newer.
  /// \errors as `close` and `channel_builder::build`
  [[nodiscard]] result<struct endpoint> renew() noexcept;
  /// Connects a channel that is prepared, by `renew` or at first. On failure it is broken.
  /// \errors as `queue_pair::handshake`; `mismatch` for an endpoint of an earlier connection;
  /// `busy` if it is connected, `not_connected` if it was not renewed
  [[nodiscard]] result<void> handshake(const struct endpoint& remote) noexcept;
  /// The same to the peer that a connection manager has found.
  [[nodiscard]] result<void> handshake(const managed_attributes& by) noexcept;

  [[nodiscard]] channel_state state() const noexcept {
    return is_empty() ? channel_state::empty : core().state();
  }
  /// Which channel of its hub it is, as arrivals there say; of generation 0 if it is in none.
  [[nodiscard]] channel_id id() const noexcept { return core().id(); }
  [[nodiscard]] bool is_connected() const noexcept { return state() == channel_state::connected; }
  /// Why it is broken; empty if it isn't.
  [[nodiscard]] std::optional<channel_failure> failure() const noexcept;
  /// Requests that have not been found finished. None once a wait, a blocking call or the end of a
  /// scope has found the channel broken, since these collect all that is outstanding then; `poll`,
  /// which waits for nothing, takes what is there, and may have to be called again.
  [[nodiscard]] std::uint32_t outstanding() const noexcept;
  /// Null if the channel is empty.
  [[nodiscard]] ibv_cq* native_completion_queue() const noexcept;

 private:
  friend class inbox;
  friend detail::channel_access;
  friend detail::hub_turn;
  friend posting_operations<channel>;
  friend blocking_operations<channel>;
  friend lease_operations<channel>;
  using core_owner::core;

  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t every(
      const stream_options& options) const noexcept {
    return std::clamp(options.signal_every, 1U, std::max(core().sends().longest_unsignaled(), 1U));
  }
};

/// A channel between its building and its first handshake: it has an endpoint to give to the peer,
/// and takes receives, which the peer's first messages find then.
///
/// A move-only owner. Thread rule: as a channel.
class prepared_channel : public detail::core_owner,
                         public posting_operations<prepared_channel, queue_pair_state::init> {
 public:
  /// For the library.
  explicit prepared_channel(detail::channel_core* core) noexcept : core_owner(core) {}

  /// Connects to the peer. It consumes the prepared channel: on failure that is destroyed, with the
  /// receives posted to it, whose handles say so.
  /// \errors as `queue_pair::handshake`
  [[nodiscard]] result<channel> handshake(const struct endpoint& remote) && noexcept;
  /// The same to the peer that a connection manager has found.
  [[nodiscard]] result<channel> handshake(const managed_attributes& by) && noexcept;
  template <class Nothing = void>
      result<channel> handshake(const struct endpoint&) &
      VERBSPP_DETAIL_REFUSED(std::is_void_v<Nothing>,
                             "the handshake consumes the prepared channel: write "
                             "std::move(prepared).handshake(remote_endpoint)");

 private:
  friend channel;
  friend class inbox;
  friend posting_operations<prepared_channel, queue_pair_state::init>;
};

}  // namespace verbspp
