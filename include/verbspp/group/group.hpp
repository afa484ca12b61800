// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/channel_hub.hpp>
#include <verbspp/channel/channel_id.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/group/detail/channel_access.hpp>
#include <verbspp/group/detail/member_connector.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_operations.hpp>
#include <verbspp/group/group_pending.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/qp/endpoint.hpp>
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

/// Several channels as one: numbered peers, whose channels complete in one queue.
///
///     VERBSPP_TRY(prepared, prepare_group(domain.build_channel(), 3));
///     ... give prepared.endpoint(peer) to each peer, and get theirs
///     VERBSPP_TRY(peers, std::move(prepared).handshake(remotes));
///     VERBSPP_TRYV(peers[1].send({.elements = news}));
///     VERBSPP_TRYV(peers.multicast(peers.all(), {.elements = news}));
///
/// `peers[n]` is a channel, with all that a channel does; what breaks it breaks no other. Work for
/// several of them is of the same three levels: `post_scatter`, `post_gather` and `post_multicast`
/// give a `group_pending`; `scope` sees to it that all that its function posts, to whatever peers,
/// has finished when it returns; `scatter`, `gather` and `multicast` post to all, and wait for all
/// by one limit. Errors are told by peer. Handles and results of work with several peers take two
/// allocations a call; scopes one.
///
/// The peers of a world that was joined lazily are connected at their first use: by all of the
/// above, and by `connect`, which comes before `peers[n]` is used by itself. Those who are
/// connected get their parts before the others are called; to who is reached only when the limit
/// has passed, nothing is posted. Their numbers are not given to members that are added. A channel
/// that the program puts under one of them before its first use is the program's to connect: it is
/// left alone, and this end refuses who calls it.
///
/// A broken member is brought back as any channel is, by `renew` and `handshake`, or replaced
/// (`put`); the others work on. Numbers are stable: a member that was removed leaves its number to
/// one that is added.
///
/// A move-only owner; one that was moved from, or default constructed, has no members. Thread rule:
/// as a channel: one thread at a time for the group, its channels, handles and scopes.
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
  ~group() = default;

  /// One without members, which are added: channels of that hub. There can be as many as the hub
  /// has room for; two groups may have one hub.
  /// \errors `invalid_input` for a hub that was moved from; `resource_exhausted`
  [[nodiscard]] static result<group> create(const channel_hub& hub) noexcept;

  /// One more than the highest number that there has been.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// The channel of that peer, an empty one if there is none. \pre the number is below `size()`
  [[nodiscard]] channel& operator[](std::uint32_t peer) noexcept VERBSPP_LIFETIMEBOUND {
    assert(peer < size_);
    return channels_.get()[peer];
  }
  [[nodiscard]] const channel& operator[](std::uint32_t peer) const noexcept VERBSPP_LIFETIMEBOUND {
    assert(peer < size_);
    return channels_.get()[peer];
  }
  /// The numbers of all peers that there are, broken or not, or still to be connected. Valid until
  /// the next call.
  [[nodiscard]] peer_list all() noexcept VERBSPP_LIFETIMEBOUND;
  /// The numbers of those whose channels are connected. Valid until the next call of either.
  [[nodiscard]] peer_list connected() noexcept VERBSPP_LIFETIMEBOUND;
  /// Where its channels complete: for channels to be added, `build_channel().hub(group.hub())`.
  /// \pre it is not empty
  [[nodiscard]] const channel_hub& hub() const noexcept VERBSPP_LIFETIMEBOUND { return *hub_; }

  /// Connects the peers that are prepared, each with the endpoint of its number; others' are not
  /// looked at. One that fails is broken, and keeps none of the others from being connected.
  /// \errors as `channel::handshake`, by peer; `invalid_input` for less endpoints than numbers
  [[nodiscard]] group_result<void> handshake(std::span<const endpoint> remotes) noexcept;
  /// Sees to it that those peers are connected. In a world that was joined lazily, it connects
  /// those that are not yet, and waits until they are ready at both ends; a peer that does not
  /// answer in time can be tried again. Elsewhere it only tells.
  /// \errors by peer: `timed_out` and `cancelled` of those that did not answer; `not_connected` of
  /// those that are not connected, or could not be; `channel_builder::build` and
  /// `channel::handshake`; `invalid_input` for a number beyond the group's size
  group_results connect(const peer_list& peers,
                        const wait_limit& limit = detail::default_limit) noexcept;
  /// Takes in a channel of the group's hub, prepared or connected, under the lowest number that is
  /// free. If that fails, the channel stays the caller's.
  /// \errors `invalid_input` for one that is empty, or of another hub; `resource_exhausted`
  [[nodiscard]] result<std::uint32_t> add(channel&& member) noexcept;
  /// The same under that number, instead of the one that is there, which is destroyed.
  /// \errors as `add`; `invalid_input` for a number beyond what the hub has room for
  [[nodiscard]] result<void> put(std::uint32_t peer, channel&& member) noexcept;
  /// Takes a member out, which is the caller's then. An empty channel if there is none.
  [[nodiscard]] channel remove(std::uint32_t peer) noexcept;

  /// The number of the peer whose channel has that id; empty if it is none of the group's.
  [[nodiscard]] std::optional<std::uint32_t> peer_of(channel_id id) noexcept;
  /// Takes what has arrived from any peer: messages, where the hub has a pool, and news, of which
  /// it takes care; handles have their results then. One look, whatever the number of peers; never
  /// blocks. `peer_of` tells whose an arrival is.
  /// \returns the slots that were filled, the first ones
  /// \errors as `channel_hub::poll`
  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) noexcept;
  /// The same, waited for: at least one.
  /// \errors as `channel_hub::wait`
  [[nodiscard]] result<std::span<arrival>> wait(std::span<arrival> into,
                                                const wait_limit& limit) noexcept;

  /// To each of the peers a part of its own, that the function returns: a `send_operation`, a
  /// `write_operation`, or a result of one. Posts to all, waiting for room where a queue is full,
  /// then waits for all; here and below, without a limit, for as long as a channel's default says.
  /// The connections of those that are late then are given up, since only so the memory is the
  /// program's again.
  /// \errors by peer, of posting and `pending::wait`; `invalid_input` for a number beyond the
  /// group's size, before anything is posted
  template <class Function>
    requires ScatteredParts<Function>
  group_results scatter(const peer_list& peers, Function part_for,
                        const wait_limit& limit = detail::default_limit) {
    return run_each(peers, part_for, limit);
  }
  /// From each of the peers a part of its own, that the function returns: a `receive_operation`, a
  /// `read_operation`, or a result of one.
  template <class Function>
    requires GatheredParts<Function>
  group_results gather(const peer_list& peers, Function part_from,
                       const wait_limit& limit = detail::default_limit) {
    return run_each(peers, part_from, limit);
  }
  /// The same message to each of the peers.
  group_results multicast(const peer_list& peers, const send_operation& operation,
                          const wait_limit& limit = detail::default_limit) noexcept {
    auto same = [&](std::uint32_t /*peer*/) noexcept { return operation; };
    return run_each(peers, same, limit);
  }
  /// The same bytes to a place of each of the peers', that the function returns.
  template <class Function>
    requires NamesDestinations<Function>
  group_results multicast(const peer_list& peers, const gather_list& elements, Function place_at,
                          const wait_limit& limit = detail::default_limit) {
    auto same = [&](std::uint32_t peer) {
      return write_operation{.elements = elements, .remote = place_at(peer)};
    };
    return run_each(peers, same, limit);
  }

  /// Calls `function` with a `group_scope&`, and returns when all that was posted through it has
  /// finished, with each peer: also when it returns an error, or throws. One limit for all of it.
  /// \returns what the function returns (void, a value, or a result's value), or a `group_error`,
  /// which tells the function's own error from the peers'; the channels' `failure()` have each
  template <class Function>
  auto scope(Function&& function, const wait_limit& limit = detail::default_limit) {
    return run_scope<group_scope>(function, limit);
  }
  /// The same with a `manual_group_scope&`, for those who take the result of every request
  /// themselves: that some was not taken is an error, too, of its peer.
  template <class Function>
  auto manual_scope(Function&& function, const wait_limit& limit = detail::default_limit) {
    return run_scope<manual_group_scope>(function, limit);
  }

  /// For the library: members up to that size are connected at their first use, by what has to
  /// live as long as the group. \pre there is room for as many
  void connect_at_first_use(detail::member_connector& by, std::uint32_t size) noexcept {
    connector_ = &by;
    size_ = size;
  }
  /// For the library: whether that peer is still to be connected.
  [[nodiscard]] bool is_due(std::uint32_t peer) const noexcept {
    return connector_ != nullptr && connector_->is_due(*this, peer);
  }
  /// For the library: the same of any of them.
  [[nodiscard]] bool is_any_due(const peer_list& peers) const noexcept;
  /// For the library: the same of each of them, in their order; null if there is no memory. Who is
  /// connected has its part posted before those are called, who may take all the time there is.
  [[nodiscard]] detail::owned<bool[]> due_places(const peer_list& peers) const noexcept;
  /// For the library: why nothing is posted to the peer at that place, after `connect`. Not where
  /// the limit has passed, either: what was posted would be given up, and the connection with it.
  [[nodiscard]] static std::optional<transport_error> why_not_reached(
      const group_results& reached, std::uint32_t place, const wait_limit* limit) noexcept;
  /// For the library: what `connect` tells of that peer where there is nothing to be done.
  [[nodiscard]] transport_result<completed_work> state_of(std::uint32_t peer) const noexcept;
  /// For the library: answers who connects to this end, if that is how this group does it.
  void serve() noexcept {
    if (connector_ != nullptr) connector_->serve(*this);
  }

  friend std::ostream& operator<<(std::ostream& out, const group& g);

 private:
  friend group_operations<group>;
  friend class prepared_group;

  /// Posts what the function has for each, and goes on where that fails. With a limit, it waits for
  /// room where a queue is full.
  template <class Function>
  [[nodiscard]] result<group_pending> post_each(const peer_list& peers, Function& part_for,
                                                const wait_limit* limit = nullptr) {
    const detail::posting_terms terms{.waits_for_room = limit != nullptr,
                                      .limit = call_limit::from(limit)};
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
    detail::owned<bool[]> is_due_at{};
    if (is_any_due(peers)) [[unlikely]] {
      is_due_at = due_places(peers);
      if (!is_due_at) return no_memory("connect peers of a group");
    }
    for (std::uint32_t place = 0; place < made.size(); ++place)
      if (!is_due_at || !is_due_at.get()[place]) post_part(place);
    if (!is_due_at) return made;
    const group_results reached =
        connect(peers, limit != nullptr ? *limit : wait_limit(usual_limit()));
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
    detail::channel_core& core = detail::channel_access::core_of(channels_.get()[made.peer(place)]);
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
    Scope opened(channels_.get(), scopes.get(), size_,
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
  /// That of its first member.
  [[nodiscard]] std::chrono::nanoseconds usual_limit() const noexcept;
  [[nodiscard]] result<void> check(const channel& member) const noexcept;
  void take_news(std::span<arrival> arrived) noexcept;
  [[nodiscard]] result<std::span<arrival>> wait_and_serve(std::span<arrival> into,
                                                          const wait_limit& limit) noexcept;
  template <class Has>
  [[nodiscard]] peer_list collect_numbers(Has has) noexcept;
  [[nodiscard]] static error no_memory(const char* operation) noexcept;

  std::optional<channel_hub> hub_{};
  detail::owned<channel[]> channels_{};        ///< as many as the hub can have
  detail::owned<std::uint32_t[]> numbers_{};   ///< what `all` and `connected` view
  detail::owned<std::uint32_t[]> by_index_{};  ///< the peers by the indexes of the hub, if known
  std::uint32_t size_ = 0;
  detail::member_connector* connector_ = nullptr;  ///< null where all are connected by the program
};

}  // namespace verbspp
