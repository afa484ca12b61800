// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/group/detail/kept_peers.hpp>
#include <verbspp/group/detail/member_connector.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_operations.hpp>
#include <verbspp/group/group_pending.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/operations.hpp>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace verbspp {

/// Several channels that are used as one object. The peers have numbers, and their channels share
/// one completion queue.
///
///     VERBSPP_TRY(prepared, prepare_group(domain.build_channel(), 3));
///     ... give prepared.endpoint(peer) to each peer, and get theirs
///     VERBSPP_TRY(peers, std::move(prepared).handshake(remotes));
///     VERBSPP_TRYV(peers[1].send({.elements = news}));
///     VERBSPP_TRYV(peers.multicast(peers.all(), {.elements = news}));
///
/// `peers[n]` is an ordinary channel. If it breaks, the other channels are not affected. Operations
/// on several peers come in three forms: `post_scatter`, `post_gather` and `post_multicast` return
/// a handle, a `group_pending`; `scope` returns when all requests that its function has posted, to
/// any peer, have finished; and `scatter`, `gather` and `multicast` post to all listed peers, and
/// wait until all requests have finished, with one limit. An operation on several peers makes two
/// allocations for its handles and results. A scope makes one allocation, and another one for each
/// of its operations on more than 64 peers. Connecting a peer on its first use allocates more.
///
/// In a world that connects lazily, a peer is connected by the first of these operations that
/// includes it. Call `connect` before you use `peers[n]` directly. An operation first posts to the
/// peers that are connected, and then connects the others. If a peer is connected only after the
/// limit, nothing is posted to it. `add` never assigns the number of a peer that still has to be
/// connected. If the program assigns such a number with `put`, before either end has begun to
/// connect, the group does not connect that peer, and refuses the peer's own attempts to connect.
/// The program then has to connect the peer itself.
///
/// A broken member can be repaired like any channel, with `renew` and `handshake`, or replaced with
/// `put`; the other members continue to work. The number of a member does not change. After a
/// member has been removed, its number can be assigned to a new member.
///
/// A move-only owner. A group that was moved from or default-constructed is empty, which means that
/// it has no hub and no members. Thread rule: one thread at a time for the group, its channels,
/// handles and scopes.
class group : public group_operations<group> {
 public:
  group() noexcept = default;
  group(const group&) = delete;
  group& operator=(const group&) = delete;
  group(group&& other) noexcept
      : hub_(std::move(other.hub_)),
        channels_(std::move(other.channels_)),
        numbers_(std::move(other.numbers_)),
        by_index_(std::move(other.by_index_)),
        size_(std::exchange(other.size_, 0)),
        connector_(std::exchange(other.connector_, nullptr)) {}
  group& operator=(group&& other) noexcept;
  ~group() { stop(); }

  /// Creates a group without members. Channels that use this hub can then be added, up to the hub's
  /// capacity. Two groups may share a hub.
  /// \errors `invalid_input` if the hub was moved from; `resource_exhausted`
  [[nodiscard]] static result<group> create(const channel_hub& hub) noexcept;

  /// One more than the highest number that a member has had, or that is reserved for a peer which
  /// still has to be connected; 0 if there was none.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// The channel of the peer with this number; empty if there is no such member. \pre the number is
  /// below `size()`
  [[nodiscard]] channel& operator[](std::uint32_t peer) noexcept VERBSPP_LIFETIMEBOUND {
    assert(peer < size_);
    return channels_.get()[peer];
  }
  [[nodiscard]] const channel& operator[](std::uint32_t peer) const noexcept VERBSPP_LIFETIMEBOUND {
    assert(peer < size_);
    return channels_.get()[peer];
  }
  /// The numbers of all members, whatever their state, and of the peers that still have to be
  /// connected. The list is valid until the next call to `all` or `connected`.
  [[nodiscard]] peer_list all() noexcept VERBSPP_LIFETIMEBOUND;
  /// The numbers of the peers whose channels are connected. The list is valid until the next call
  /// to `all` or `connected`.
  [[nodiscard]] peer_list connected() noexcept VERBSPP_LIFETIMEBOUND;
  /// The hub that the group's channels use. Build further channels for the group with it:
  /// `build_channel().hub(group.hub())`. \pre the group is not empty
  [[nodiscard]] const channel_hub& hub() const noexcept VERBSPP_LIFETIMEBOUND { return *hub_; }

  /// Connects the peers whose channels are prepared. `remotes[n]` is the endpoint of peer n; the
  /// endpoints of other peers are ignored. If the handshake with a peer fails, the other peers are
  /// connected nevertheless.
  /// \errors those of `channel::handshake`, for the first peer that failed; `invalid_input` if
  /// there are fewer than `size()` endpoints
  [[nodiscard]] group_result<void> handshake(std::span<const endpoint> remotes) noexcept;
  /// Ensures that these peers are connected. In a world that connects lazily, this function
  /// connects the peers that are not connected yet, and waits until both ends are connected. If a
  /// peer does not respond in time, the program can call `connect` again. In other groups, the call
  /// only reports the state of the peers.
  /// \errors for each peer: `timed_out` and `cancelled` for peers that did not respond;
  /// `not_connected` for peers that are not, or could not be, connected; the failure of a channel
  /// that broke; `invalid_input` for a number that is not below the group's size; in a world that
  /// connects lazily, those of `world::join_lazily`. For the whole call: `resource_exhausted`
  group_results connect(const peer_list& peers,
                        const wait_limit& limit = detail::default_limit) noexcept;
  /// Adds a channel that uses the group's hub, and gives it the lowest free number. The channel may
  /// be prepared or connected. On failure, the caller keeps the channel.
  /// \errors `invalid_input` if the group or the channel is empty, or their hubs differ;
  /// `resource_exhausted`
  [[nodiscard]] result<std::uint32_t> add(channel&& member) noexcept;
  /// Like `add`, but gives the channel the number `peer`. Destroys the previous member with this
  /// number.
  /// \errors `invalid_input` as for `add`, and if the number is not below the hub's capacity
  [[nodiscard]] result<void> put(std::uint32_t peer, channel&& member) noexcept;
  /// Removes a member. \returns its channel; an empty channel if there is no such member
  [[nodiscard]] channel remove(std::uint32_t peer) noexcept;

  /// The number of the peer whose channel has this id; empty if the channel is not a member of the
  /// group.
  [[nodiscard]] std::optional<std::uint32_t> peer_of(channel_id id) noexcept;
  /// Returns the available arrivals of the hub's channels: messages, if the hub has a pool, and
  /// notifications. It also processes the completions that the notifications of members report, so
  /// that the handles of the requests have their results. It polls one queue, and does not wait for
  /// arrivals. In a world that connects lazily, it also answers connection requests, as
  /// `world::serve` does. `peer_of` returns the peer of an arrival.
  /// \returns the slots that were filled, at the beginning of `into`
  /// \errors those of `channel_hub::poll`
  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) noexcept;
  /// Calls `channel::poll` on each channel of the hub that has completions or other news (see
  /// `channel_hub::poll`), for an event loop whose channels have coroutines or continuations. In a
  /// world that connects lazily, it also answers connection requests.
  /// \errors those of `channel_hub::poll`
  [[nodiscard]] result<void> poll() noexcept;
  /// Like `poll`, but waits for at least one arrival.
  /// \errors those of `channel_hub::wait`
  [[nodiscard]] result<std::span<arrival>> wait(std::span<arrival> into,
                                                const wait_limit& limit) noexcept;

  /// The descriptor of the hub, for event loops (`EventSource`); -1 if the hub only spins, or if
  /// the group is empty.
  [[nodiscard]] int file_descriptor() const noexcept { return hub_ ? hub_->file_descriptor() : -1; }
  /// Like `channel_hub::request_notification`.
  /// \errors in addition, `invalid_input` if the group is empty
  [[nodiscard]] result<bool> request_notification() noexcept;
  /// The time by which the program has to call `poll`: that of the hub or, in a world that connects
  /// lazily, at most 1 ms from now, because a connection request wakes no thread.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

  /// Sends or writes a separate part to each peer. `part_for` returns the operation for a peer: a
  /// `send_operation`, a `write_operation`, or a `result` that holds one of these. Posts to all
  /// listed peers, waiting for room if a queue is full, and then waits until all requests have
  /// finished. By default, the limit of a group's operations is the default limit of its first
  /// channel. When the limit is reached, the channels whose requests have not finished break,
  /// because otherwise the program could not reuse the memory.
  /// \errors for each peer, those of posting and of `pending::wait`, the error that `part_for` has
  /// returned and, in a world that connects lazily, those of `connect`. For the whole call, before
  /// anything is posted: `invalid_input` for a number that is not below the group's size;
  /// `timed_out` and `cancelled` if the limit has already been reached; `resource_exhausted`
  template <class Function>
    requires ScatteredParts<Function>
  group_results scatter(const peer_list& peers, Function part_for,
                        const wait_limit& limit = detail::default_limit) {
    return run_each(peers, part_for, limit);
  }
  /// Receives or reads a separate part from each peer. `part_from` returns the operation for a
  /// peer: a `receive_operation`, a `read_operation`, or a `result` that holds one of these.
  template <class Function>
    requires GatheredParts<Function>
  group_results gather(const peer_list& peers, Function part_from,
                       const wait_limit& limit = detail::default_limit) {
    return run_each(peers, part_from, limit);
  }
  /// Sends the same message to each of the peers.
  group_results multicast(const peer_list& peers, const send_operation& operation,
                          const wait_limit& limit = detail::default_limit) noexcept {
    auto same = [&](std::uint32_t /*peer*/) noexcept { return operation; };
    return run_each(peers, same, limit);
  }
  /// Writes the same bytes to each of the peers. `place_at` returns the remote memory of a peer.
  template <class Function>
    requires NamesDestinations<Function>
  group_results multicast(const peer_list& peers, const gather_list& elements, Function place_at,
                          const wait_limit& limit = detail::default_limit) {
    auto same = [&](std::uint32_t peer) {
      return write_operation{.elements = elements, .remote = place_at(peer)};
    };
    return run_each(peers, same, limit);
  }

  /// Calls `function` with a `group_scope&`, and returns when all requests that were posted through
  /// this scope have finished, for every peer, even if `function` returns an error or throws. One
  /// limit applies to the whole scope.
  /// \returns the function's result (void, a value, or a result's value), or a `group_error`, which
  /// separates the function's own error from the failures of the peers. The `failure()` of a peer's
  /// channel contains the details
  template <class Function>
  auto scope(Function&& function, const wait_limit& limit = detail::default_limit) {
    return run_scope<group_scope>(function, limit);
  }
  /// Like `scope`, but passes a `manual_group_scope&`, for programs that retrieve the result of
  /// every request themselves. A result that was not retrieved is reported as an error of its peer.
  template <class Function>
  auto manual_scope(Function&& function, const wait_limit& limit = detail::default_limit) {
    return run_scope<manual_group_scope>(function, limit);
  }

  /// Used by the library only: from now on, `by` connects each peer with a number below `size` when
  /// the peer is first used. `by` must outlive the group. \pre the capacity of the group is at
  /// least `size`
  void connect_at_first_use(detail::member_connector& by, std::uint32_t size) noexcept {
    connector_ = &by;
    size_ = size;
  }
  /// Used by the library only: the object that connects peers on their first use; null if the
  /// program connects all members.
  [[nodiscard]] detail::member_connector* connector() const noexcept { return connector_; }
  /// Used by the library only: true if this peer still has to be connected.
  [[nodiscard]] bool is_due(std::uint32_t peer) const noexcept {
    return connector_ != nullptr && connector_->is_due(*this, peer);
  }
  /// Used by the library only: true if any of these peers still has to be connected.
  [[nodiscard]] bool is_any_due(const peer_list& peers) const noexcept;
  /// Used by the library only: returns an array with one entry for each of the listed peers, in
  /// order. An entry is true if the peer still has to be connected. Returns null if memory is
  /// exhausted. The caller first posts to the peers that are connected, because connecting the
  /// others may take until the limit.
  [[nodiscard]] detail::owned<bool[]> due_places(const peer_list& peers) const noexcept;
  /// Used by the library only: given the results of `connect`, returns the reason why the request
  /// must not be posted to the peer at `place` in the list; empty if it may be posted. A limit that
  /// has been reached is such a reason: the request would be aborted immediately, which would break
  /// the channel.
  [[nodiscard]] static std::optional<transport_error> why_not_reached(
      const group_results& reached, std::uint32_t place, const wait_limit* limit) noexcept;
  /// Used by the library only: returns the result that `connect` reports for a peer that it does
  /// not have to connect: success if the peer is connected, otherwise the reason why it is not.
  [[nodiscard]] transport_result<completed_work> state_of(std::uint32_t peer) const noexcept;
  /// Used by the library only: responds to connection requests from peers, in a group that connects
  /// its peers on their first use.
  void serve() noexcept {
    if (connector_ != nullptr) connector_->serve(*this);
  }

  friend std::ostream& operator<<(std::ostream& out, const group& g);

 private:
  friend group_operations<group>;
  friend class prepared_group;

  /// True if the group has no hub, or if its hub was moved from together with the group.
  [[nodiscard]] bool is_empty() const noexcept { return !hub_ || hub_->capacity() == 0; }
  [[nodiscard]] static error refusal_of_empty(const char* operation) noexcept;
  /// Stops all members before they are destroyed. If their hub has a pool, the destructors then
  /// wait only once (see `channel::stop`).
  void stop() const noexcept {
    for (std::uint32_t peer = 0; peer < size_; ++peer) channels_.get()[peer].stop();
  }
  /// Posts the operations that the function returns for the peers. If posting to a peer fails, this
  /// function continues with the next peer. If there is a limit, it waits for room when a queue is
  /// full.
  template <class Function>
  [[nodiscard]] result<group_pending> post_each(const peer_list& peers, Function& part_for,
                                                const wait_limit* limit = nullptr) {
    const detail::posting_terms terms{
        .waits_for_room = limit != nullptr,
        .limit = limit != nullptr ? call_limit(*limit) : call_limit::of_channel()};
    VERBSPP_TRY(made, group_pending::reserve(peers, size_));
    made.set_usual_limit(usual_limit());
    const auto post_part = [&](std::uint32_t place) {
      auto part = part_for(made.peer(place));
      if constexpr (detail::MayLackValue<decltype(part)>) {
        if (part.has_value())
          post_one(made, place, part.assume_value(), terms);
        else
          made.fail(place, part.assume_error());
      } else {
        post_one(made, place, part, terms);
      }
    };
    const detail::kept_peers due(is_any_due(peers) ? peers : peer_list());
    detail::owned<bool[]> is_due_at{};
    if (!due.list().empty()) [[unlikely]] {
      is_due_at = due_places(peers);
      if (!is_due_at || !due.exists()) return no_memory("connect peers of a group");
    }
    for (std::uint32_t place = 0; place < made.size(); ++place)
      if (!is_due_at || !is_due_at.get()[place]) post_part(place);
    if (!is_due_at) return made;
    const group_results reached =
        connect(due.list(), limit != nullptr ? *limit : wait_limit(usual_limit()));
    for (std::uint32_t place = 0; place < made.size(); ++place) {
      if (!is_due_at.get()[place]) continue;
      if (const auto refused = why_not_reached(reached, place, limit))
        made.fail(place, *refused);
      else
        post_part(place);
    }
    return made;
  }
  template <class Operation>
  void post_one(group_pending& made, std::uint32_t place, const Operation& operation,
                const detail::posting_terms& terms) noexcept {
    // The program's function may have assigned a smaller group to this one.
    if (made.peer(place) >= size_) [[unlikely]]
      return made.fail(place, state_of(made.peer(place)).assume_error());
    detail::channel_core& core = channels_.get()[made.peer(place)].core();
    detail::request posted;
    const result<void> done = core.post(operation, posted, terms);
    if (done.has_value())
      made.begin(place, core, posted);
    else
      made.fail(place, done.assume_error());
  }
  template <class Scope, class Function>
  [[nodiscard]] auto run_scope(Function& function, const wait_limit& limit) {
    using returned = decltype(detail::run_in_group(std::declval<Scope&>(), function));
    const detail::owned<std::optional<channel_scope>[]> scopes(
        new (std::nothrow) std::optional<channel_scope>[size_]);
    if (!scopes) return returned(no_memory("scope of a group"));
    Scope opened(channels_, size_, scopes.get(),
                 detail::given(limit) != nullptr ? limit : wait_limit(usual_limit()),
                 connector_ != nullptr ? this : nullptr);
    return detail::run_in_group(opened, function);
  }
  template <class Function>
  [[nodiscard]] group_results run_each(const peer_list& peers, Function& part_for,
                                       const wait_limit& limit) {
    const wait_limit until = detail::given(limit) != nullptr ? limit : wait_limit(usual_limit());
    if (until.has_passed()) return detail::channel_core::ended_before(until);
    auto posted = post_each(peers, part_for, &until);
    if (!posted.has_value()) return posted.assume_error();
    return posted.assume_value().wait(until);
  }
  /// The default limit of the group's first channel.
  [[nodiscard]] std::chrono::nanoseconds usual_limit() const noexcept;
  [[nodiscard]] result<void> check(const channel& member) const noexcept;
  void take_news(std::span<arrival> arrived) noexcept;
  [[nodiscard]] result<std::span<arrival>> wait_and_serve(std::span<arrival> into,
                                                          const wait_limit& limit) noexcept;
  template <class Has>
  [[nodiscard]] peer_list collect_numbers(Has has) noexcept;
  [[nodiscard]] static error no_memory(const char* operation) noexcept;

  std::optional<channel_hub> hub_{};
  detail::owned<channel[]> channels_{};        ///< room for as many channels as the hub can have
  detail::owned<std::uint32_t[]> numbers_{};   ///< the storage of `all` and `connected`
  detail::owned<std::uint32_t[]> by_index_{};  ///< peers by `channel_id::index`; may be outdated
  std::uint32_t size_ = 0;
  detail::member_connector* connector_ = nullptr;  ///< null if the program connects all members
};

}  // namespace verbspp
