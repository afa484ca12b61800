// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/queue_pair_data.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/qp/status.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>
#include <verbspp/work/address_handle.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/datagram.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/receive_queue_operations.hpp>
#include <verbspp/work/send_queue_operations.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

namespace verbspp {

template <transport Theirs, queue_pair_state From, transport Transport, queue_pair_state State>
concept ForThisQueuePair =
    detail::because(Theirs == Transport,
                    "these attributes are for a queue pair of another transport: create them for "
                    "this queue pair's transport") &&
    detail::because(From == State,
                    "these attributes are for a transition from a state that this queue pair is "
                    "not in: create them for its current state");

template <queue_pair_state From, queue_pair_state To>
concept ChangesState = detail::because(
    From != To,
    "this modification leaves the queue pair in its state and does not consume it: write "
    "queue_pair.modify(attributes), or modify_native(attributes, mask), without std::move");

template <queue_pair_state From, queue_pair_state To>
concept KeepsState =
    detail::because(From == To,
                    "a transition to another state consumes the queue pair: write "
                    "std::move(queue_pair).modify(attributes), and use the queue pair that it "
                    "returns");

/// A queue pair of one transport, in the state that its type names.
///
/// `queue_pair_builder` creates a *prepared* queue pair (INIT), which has an endpoint for the peer,
/// and whose own receive queue, if it has one, accepts receives. Its handshake (on UD, `activate`)
/// returns the *connected* queue pair (RTS), which can also send. `modify` performs every other
/// transition of the state machine, whose diagram is in docs/queue_pair_states.md. The type
/// reflects only the program's own calls: after a failure, the device itself moves the queue pair
/// to ERR or SQE. `query_state` reports that state, and later requests (in SQE, sends) complete
/// with an error.
///
/// There is one rule for failures: if a call that consumes the queue pair fails, it destroys the
/// queue pair, together with the work posted to it. If any other call fails, the state of the queue
/// pair is unchanged. A borrowed queue pair (`queue_pair_builder::from_native`) is never destroyed:
/// it remains with its creator, in the state in which the failure left it.
///
/// A move-only owner: destroying it, or assigning to it, destroys the queue pair and aborts
/// outstanding work, without completions. It keeps its protection domain, completion queues and
/// shared receive queue alive, but not the memory of outstanding work. Thread rule: as with an
/// `ibv_qp`, several threads may post at the same time, unless the queue pair belongs to a thread
/// domain; moving, connecting and destroying the queue pair need exclusive access.
template <transport Transport, queue_pair_state State,
          receive_queue_kind Receives = receive_queue_kind::own,
          posting_interface Posting = posting_interface::standard>
class VERBSPP_CONSUMABLE queue_pair
    : public send_queue_operations<queue_pair<Transport, State, Receives, Posting>, Transport,
                                   State, Posting>,
      public receive_queue_operations<queue_pair<Transport, State, Receives, Posting>, State,
                                      Receives> {
  // The same as `verbspp::result`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Transport>>;

 public:
  static constexpr transport type = Transport;
  static constexpr queue_pair_state state = State;
  static constexpr receive_queue_kind receives = Receives;
  static constexpr posting_interface posting = Posting;
  /// The type of this queue pair in another state.
  template <queue_pair_state Other>
  using in_state = queue_pair<Transport, Other, Receives, Posting>;

  /// Used by the library only: takes over a queue pair that is in this state.
  explicit queue_pair(detail::queue_pair_data data) noexcept : data_(std::move(data)) {}
  queue_pair(queue_pair&&) noexcept = default;
  queue_pair& operator=(queue_pair&&) noexcept = default;
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;
  ~queue_pair() = default;

  // `endpoint` and `capacities` return references into the queue pair, but copies if the queue pair
  // is a temporary.

  /// The data that the peer needs in order to connect; empty if the queue pair was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const struct endpoint& endpoint() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return data_.local;
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED struct endpoint endpoint() const&& noexcept {
    return data_.local;
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED queue_pair_number number() const noexcept {
    return data_.local.number;
  }
  /// The granted capacities; 0 if the queue pair was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const queue_pair_capacities& capacities()
      const& noexcept VERBSPP_LIFETIMEBOUND {
    return data_.capacities;
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED queue_pair_capacities capacities() const&& noexcept {
    return data_.capacities;
  }

  /// Connects to the peer: RTR, then RTS (`ibv_modify_qp`). Receives that were posted remain
  /// posted.
  ///
  /// Consumes the queue pair: on success, it is moved into the result; on failure, it is destroyed,
  /// together with the receives posted to it, before this call returns. To try again, build a new
  /// queue pair.
  /// \errors `mismatch` if the two ends are incompatible, and `invalid_input` if no queue pair can
  /// be connected to `remote` (both detected before the device is called); `invalid_input`,
  /// `timed_out` or `driver` (the peer's address does not resolve) and others from the device, with
  /// the transition's name; `invalid_input` if this queue pair was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::ready_to_send>>
      handshake(struct endpoint remote) && noexcept
    requires Connects<Transport> && Prepared<State>
  {
    return taken<queue_pair_state::ready_to_send>(
        [&](auto& data) { return detail::connect(data, remote); });
  }
  /// Connects to a peer that a connection manager has found, with the attributes that the manager
  /// supplies.
  /// \errors `mismatch` if the builder was given a path MTU that differs from the manager's;
  /// `invalid_input` with the attribute that is missing or not accepted, for a path MTU out of
  /// range, or if this queue pair was moved from; `not_found` if the manager's port differs from
  /// the builder's, and has no usable address; `resource_exhausted`; those of the device, with the
  /// transition's name
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::ready_to_send>>
      handshake(const managed_attributes& by) && noexcept
    requires Connects<Transport> && Prepared<State>
  {
    return taken<queue_pair_state::ready_to_send>(
        [&](auto& data) { return detail::connect(data, by); });
  }
  template <queue_pair_state From = State>
    requires Connects<Transport> && Prepared<From> &&
             (detail::because(From != queue_pair_state::init,
                              "the handshake consumes the queue pair: write "
                              "std::move(queue_pair).handshake(remote_endpoint)"))
  void handshake(struct endpoint) &;

  /// Brings a datagram queue pair to RTS, in which it can send to any peer. Like the handshake,
  /// this consumes the queue pair.
  /// \errors `invalid_input` if this queue pair was moved from; those of the device
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::ready_to_send>>
      activate() && noexcept
    requires SendsDatagrams<Transport> && Prepared<State>
  {
    return taken<queue_pair_state::ready_to_send>(
        [](auto& data) { return detail::activate(data); });
  }

  /// Returns an empty set of attributes for the transition from this state to `To`.
  template <queue_pair_state To>
    requires TransitionExists<Transport, State, To>
  [[nodiscard]] static queue_pair_attributes<Transport, State, To> attributes_to() noexcept {
    return {};
  }

  /// Performs a transition (`ibv_modify_qp`) and returns the queue pair in its new state.
  ///
  /// Consumes the queue pair, which is destroyed on failure. The endpoint is updated if the
  /// attributes change the port (and thus its addresses), the send PSN or the queue key.
  /// \errors `invalid_input` if this queue pair was moved from, or the path has no destination;
  /// `mismatch` if the path is for a link layer other than the port's; `timed_out` or `driver` if
  /// the path's address does not resolve; `not_found` if a new port has no usable address;
  /// `resource_exhausted`; other errors of the device, such as `invalid_input`. If `ibv_modify_qp`
  /// fails, the message names the transition
  template <transport Theirs, queue_pair_state From, queue_pair_state To,
            queue_pair_attribute_set Given>
    requires ForThisQueuePair<Theirs, From, Transport, State> &&
             NoAttributeMissing<Theirs, From, To, Given> && ChangesState<From, To>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<in_state<To>> modify(
      const queue_pair_attributes<Theirs, From, To, Given>& attributes) && noexcept {
    return taken<To>([&](auto& data) { return detail::modify(data, attributes); });
  }
  /// Changes attributes without changing the state. On failure, the attributes are unchanged.
  /// \errors as for a transition to another state
  template <transport Theirs, queue_pair_state From, queue_pair_state To,
            queue_pair_attribute_set Given>
    requires ForThisQueuePair<Theirs, From, Transport, State> &&
             NoAttributeMissing<Theirs, From, To, Given> && KeepsState<From, To>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> modify(
      const queue_pair_attributes<Theirs, From, To, Given>& attributes) & noexcept {
    return detail::modify(data_, attributes);
  }

  /// Performs the transition to `To` with attributes that are known only at run time, such as those
  /// of librdmacm's `rdma_init_qp_attr`; IBV_QP_STATE in the mask is optional.
  ///
  /// The attributes are checked against the transition table before the device is called. Like
  /// `modify`, this consumes the queue pair, and updates the endpoint.
  /// \errors `invalid_input` with the attribute that is missing or not accepted, or if the
  /// attributes are for another state, or this queue pair was moved from; `not_found` if a new port
  /// has no usable address; `resource_exhausted`; those of the device, with the transition's name
  template <queue_pair_state To>
    requires TransitionExists<Transport, State, To> && ChangesState<State, To>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<in_state<To>> modify_native(
      const ibv_qp_attr& attributes, int attr_mask) && noexcept {
    return taken<To>(
        [&](auto& data) { return detail::modify_native(data, State, To, attributes, attr_mask); });
  }
  /// Changes attributes without changing the state. On failure, the attributes are unchanged.
  /// \errors as above
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> modify_native(
      const ibv_qp_attr& attributes, int attr_mask) & noexcept
    requires TransitionExists<Transport, State, State>
  {
    return detail::modify_native(data_, State, State, attributes, attr_mask);
  }

  /// Aborts all outstanding work, without completions, and returns to RESET. Completions that the
  /// device reported earlier may still be in the completion queues.
  /// \errors `invalid_input` if this queue pair was moved from; those of the device
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::reset>>
      to_reset() && noexcept {
    return without_attributes<queue_pair_state::reset>();
  }
  /// Moves the queue pair to ERR. All outstanding work completes as flushed, and so does all work
  /// that is posted later.
  /// \errors those of `to_reset`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::error>>
      to_error() && noexcept
    requires TransitionExists<Transport, State, queue_pair_state::error>
  {
    return without_attributes<queue_pair_state::error>();
  }
  /// Changes from RESET to INIT with the builder's parameters, as `build` does after it has created
  /// the queue pair. Unless the builder was given a send PSN, the endpoint gets a new one, so that
  /// a packet of an earlier connection is unlikely to be mistaken for one of the new connection.
  /// \errors those of `to_reset`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<in_state<queue_pair_state::init>>
      prepare() && noexcept
    requires Reset<State>
  {
    return taken<queue_pair_state::init>([](auto& data) { return detail::prepare_again(data); });
  }
  /// Returns the queue pair in a state to which the device has moved it: ERR after a failure, or,
  /// on UC and UD, SQE after a failed send. Use `query_state` to find out the state. The given
  /// state is not checked, but transitions that are impossible from the actual state fail.
  template <queue_pair_state Actual>
    requires EntersByItself<Transport, State, Actual>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES in_state<Actual>
  assume_state() && noexcept {
    return in_state<Actual>(std::move(data_));
  }
  /// Returns the queue pair with the type for a state that the caller claims. This is for a queue
  /// pair whose state was changed by C code, through the `native_handle`, so that its type no
  /// longer matches.
  ///
  /// The given state is not checked, and the type then allows all operations of that state. The
  /// kernel rejects transitions that are impossible from the actual state, but it may perform one
  /// that was not intended. If requests are posted in the wrong state, the device may reject them,
  /// or lose them without a completion.
  template <queue_pair_state Claimed>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES in_state<Claimed>
  assume_state_unchecked() && noexcept {
    return in_state<Claimed>(std::move(data_));
  }

  /// Returns the path to another queue pair, with the builder's parameters, such as the hop limit.
  /// If the builder's traffic class or service level is 0, the endpoint's value is used.
  /// \errors `mismatch`, `invalid_input` if the endpoint is not suitable for this queue pair;
  /// `invalid_input` if this queue pair was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<path> path_to(
      const struct endpoint& remote) const noexcept {
    return detail::path_to(data_, remote);
  }
  /// Creates an address handle for datagrams to the queue pair of an endpoint. The maximum length
  /// of a datagram is the smaller MTU of the two ends. Longer datagrams are rejected when they are
  /// posted.
  /// \errors those of `path_to` and `address_handle::create`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<address_handle> address_of(
      const struct endpoint& remote) const noexcept
    requires SendsDatagrams<Transport>
  {
    VERBSPP_TRY(way, detail::path_to(data_, remote));
    auto made = address_handle::create(protection_domain(), data_.parameters.port, way);
    if (!made.has_value()) return detail::explained(made.assume_error(), data_.local, remote);
    made.assume_value().limit_datagrams(remote.mtu < data_.local.mtu ? remote.mtu
                                                                     : data_.local.mtu);
    return made;
  }

  /// Creates an address handle for a multicast group, with the builder's parameters, such as the
  /// hop limit. The handle's `destination_group` is the destination for datagrams, whose maximum
  /// length is this port's MTU. To send, the queue pair need not join the group.
  /// \errors `invalid_input` if the GID is not a multicast GID, on InfiniBand its LID is missing,
  /// or this queue pair was moved from; those of `address_handle::create`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<address_handle> address_of_group(
      const gid& group, lid multicast_lid = 0) const noexcept
    requires SendsDatagrams<Transport>
  {
    VERBSPP_TRY(way, detail::path_to_group(data_, group, multicast_lid));
    VERBSPP_TRY(made, address_handle::create(protection_domain(), data_.parameters.port, way));
    made.limit_datagrams(data_.local.mtu);
    return made;
  }

  /// Accepts datagrams to a multicast group (`ibv_attach_mcast`), until the queue pair leaves it or
  /// is destroyed. On InfiniBand, the port must also have joined the group through the subnet
  /// manager (as `rdma_join_multicast` does); the response of the subnet manager contains the
  /// group's LID. On Ethernet, the LID is 0, and the host must be a member of the IP group
  /// (`IP_ADD_MEMBERSHIP`). The GID of an IPv4 group is its IPv4-mapped address.
  /// \errors `invalid_input` if the GID or, on InfiniBand, the LID is not that of a multicast
  /// group, or if the queue pair has joined the group already, or was moved from;
  /// `resource_exhausted`, `not_supported`, `driver`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> join_multicast(
      const gid& group, lid multicast_lid = 0) noexcept
    requires SendsDatagrams<Transport>
  {
    return data_.owner.join(group, multicast_lid);
  }
  /// Leaves a multicast group (`ibv_detach_mcast`).
  /// \errors `not_found` if the queue pair has not joined the group; `invalid_input` if it was
  /// moved from; `driver`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> leave_multicast(
      const gid& group, lid multicast_lid = 0) noexcept
    requires SendsDatagrams<Transport>
  {
    return data_.owner.leave(group, multicast_lid);
  }

  /// Posts up to `Requests` receives with one doorbell. `fill` is called with a `receive_batch`, to
  /// which it adds the receives. The receives, and up to `Elements` elements, are stored on the
  /// stack.
  /// \errors those of `post_receive`, with the number of receives that were posted;
  /// `invalid_input` for more receives or elements than there is room for
  template <std::size_t Requests, std::size_t Elements = Requests, class Fill>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH batch_result
  post_receive_batch(Fill fill)
    requires OwnReceiveQueue<Receives> && AcceptsReceives<State>
  {
    detail::list_storage<ibv_recv_wr, Requests, Elements> storage;
    detail::listed_posting list(storage);
    receive_batch<decltype(list), shortest_receive> batch(list);
    fill(batch);
    return list.post(detail::posting_receive, data_.capacities.max_receive_elements,
                     [this](auto* first, auto* rejected) {
                       return ibv_post_recv(native_qp(), first, rejected);
                     });
  }

  /// Posts up to `Requests` requests with one doorbell. `fill` is called with a `send_batch`, to
  /// which it adds the requests.
  ///
  /// The requests form a linked list on the stack (`ibv_post_send`), with room for `Elements`
  /// elements and `InlineBytes` bytes of inline data. The default is 256 inline bytes per request,
  /// but at most 16 KiB in all. If the queue pair was built with `extended_posting`, the requests
  /// are posted by calls from `ibv_wr_start` to `ibv_wr_complete` instead, which post all of them
  /// or none; `Requests` then limits only binds. If `fill` throws, nothing is posted. `fill` must
  /// not post other requests to the send queue: drivers may hold its lock from `ibv_wr_start` to
  /// `ibv_wr_complete`. It must neither move nor destroy the queue pair, which posts the batch
  /// after `fill` has returned. Debug builds assert both of these rules for the thread's innermost
  /// batch.
  /// \errors those of the single requests, with the number of requests that were posted;
  /// `invalid_input` for more requests, elements or inline bytes than the list has room for or,
  /// with `extended_posting`, for more binds than `Requests`
  template <std::size_t Requests, std::size_t Elements = Requests,
            std::size_t InlineBytes = detail::usual_inline_bytes<Requests>, class Fill>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH batch_result post_batch(Fill fill)
    requires AcceptsSends<State>
  {
    const detail::batch_mark mark(native_qp());
    if constexpr (Posting == posting_interface::extended) {
      detail::extended_posting<Transport, ibv_qp_ex> calls(native_extended());
      send_batch<Transport, Posting, decltype(calls), Requests> batch(calls);
      fill(batch);
      return calls.post(data_.capacities,
                        [&batch]() __attribute__((always_inline)) { batch.keep_keys(Requests); });
    } else {
      detail::list_storage<ibv_send_wr, Requests, Elements, InlineBytes> storage;
      detail::listed_posting list(storage);
      send_batch<Transport, Posting, decltype(list), Requests> batch(list);
      fill(batch);
      // Without the attribute always_inline, the counters of the batch would not stay in registers.
      return list.post("ibv_post_send (batch)", data_.capacities,
                       [this, &batch](auto* first, auto* rejected) __attribute__((always_inline)) {
                         const int returned = ibv_post_send(native_qp(), first, rejected);
                         if (returned == 0)
                           batch.keep_keys(Requests);
                         else if (*rejected != nullptr)
                           batch.keep_keys(static_cast<std::size_t>(*rejected - first));
                         return returned;
                       });
    }
  }

  /// Queries the state from the device (`ibv_query_qp`), which may have moved the queue pair to ERR
  /// or SQE on its own.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<queue_pair_state> query_state() const noexcept {
    VERBSPP_TRY(status, detail::query(native_handle()));
    return status.state();
  }
  /// Queries all attributes that the device reports (`ibv_query_qp`).
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<queue_pair_status> query() const noexcept {
    return detail::query(native_handle());
  }

  // The objects from which the queue pair was created. These are shared handles: copy one to keep
  // its object alive for longer than the queue pair. They are empty if the queue pair was moved
  // from.

  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const class protection_domain& protection_domain()
      const& noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.domain();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED class protection_domain protection_domain()
      const&& noexcept {
    return data_.owner.domain();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const completion_queue& send_completion_queue()
      const& noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.send_queue();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED completion_queue
  send_completion_queue() const&& noexcept {
    return data_.owner.send_queue();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const completion_queue& receive_completion_queue()
      const& noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.receive_queue();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED completion_queue
  receive_completion_queue() const&& noexcept {
    return data_.owner.receive_queue();
  }
  /// The shared receive queue from which the queue pair takes its receives.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const class shared_receive_queue& shared_receive_queue()
      const& noexcept VERBSPP_LIFETIMEBOUND
    requires(Receives == receive_queue_kind::shared)
  {
    return *data_.owner.receives();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED class shared_receive_queue shared_receive_queue()
      const&& noexcept
    requires(Receives == receive_queue_kind::shared)
  {
    return *data_.owner.receives();
  }
  /// Null if the queue pair was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED ibv_qp* native_handle() const noexcept {
    return data_.owner.native();
  }

  /// Releases the `ibv_qp` to C code, with its work and the multicast groups that it has joined.
  /// The C code must leave these groups, and then call `ibv_destroy_qp`. The objects from which the
  /// queue pair was created are no longer kept alive, so keep them until the queue pair is
  /// destroyed. Returns null if the queue pair was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES ibv_qp* release() && noexcept {
    auto released = std::move(data_);
    return released.owner.release();
  }

  friend std::ostream& operator<<(std::ostream& out, const queue_pair& queue_pair) {
    detail::print(out, queue_pair.data_, State);
    return out;
  }

 private:
  [[nodiscard]] ibv_qp* native_qp() const noexcept {
    assert(data_.owner.native() != nullptr && "this queue pair was moved from");
    return data_.owner.native();
  }
  [[nodiscard]] ibv_qp_ex* native_extended() const noexcept {
    assert(data_.owner.native_extended() != nullptr && "this queue pair was moved from");
    return data_.owner.native_extended();
  }

  /// Consumes the queue pair. If `change` succeeds, moves the queue pair to the result, in state
  /// `To`; otherwise destroys it.
  template <queue_pair_state To, class Change>
  result<in_state<To>> taken(Change change) noexcept {
    auto taken = std::move(data_);
    VERBSPP_TRYV(change(taken));
    return in_state<To>(std::move(taken));
  }
  template <queue_pair_state To>
  result<in_state<To>> without_attributes() noexcept {
    return taken<To>(
        [](auto& data) { return detail::modify(data, attributes_for<Transport, State, To>()); });
  }

  // The base classes pass requests to these functions.
  friend send_queue_operations<queue_pair, Transport, State, Posting>;
  friend receive_queue_operations<queue_pair, State, Receives>;

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> submit(const Operation& operation,
                                                      work_tag tag) noexcept {
    if constexpr (operation_traits<Operation>::only_extended) {
      detail::assert_not_in_batch(native_qp());
      detail::extended_posting<Transport, ibv_qp_ex> call(native_extended());
      call.add(operation, tag);
      const batch_result posted = call.post(data_.capacities, [] {});
      if (!posted.has_value()) [[unlikely]]
        return posted.assume_error().cause();
      return success();
    } else {
      return detail::post_one<Transport>(native_qp(), data_.capacities, operation, tag);
    }
  }
  [[nodiscard]] VERBSPP_DATA_PATH result<void> submit(const receive_operation& operation,
                                                      receive_tag tag) noexcept {
    if constexpr (shortest_receive != 0)
      if (operation.elements.total_length() < shortest_receive) [[unlikely]]
        return detail::no_room_for_header(operation.elements.total_length());
    return detail::post_one_receive(
        operation, tag, detail::posting_receive, data_.capacities.max_receive_elements,
        [this](auto* list, auto* rejected) { return ibv_post_recv(native_qp(), list, rejected); });
  }
  template <memory_window_type Type, access_flags Rights>
  [[nodiscard]] VERBSPP_DATA_PATH result<remote_memory<Rights>> submit_bind(
      memory_window<Type>& window, const window_part<Rights>& part, bind_options options,
      work_tag tag) noexcept {
    ibv_mw* const native = window.native_handle();
    if (native == nullptr) [[unlikely]]
      return detail::window_is_gone(Type == memory_window_type::type_2
                                        ? operation_traits<detail::bind_operation>::name
                                        : detail::binding_at_once);
    if constexpr (Type == memory_window_type::type_2) {
      const detail::bind_operation bind(native, part, options);
      VERBSPP_TRYV(submit(bind, tag));
      native->rkey = bind.rkey;
    } else {
      if (!detail::is_of_domain(native, part.native())) [[unlikely]]
        return detail::cannot_bind(detail::binding_at_once, false);
      if constexpr (Transport != transport::rc)
        if (options.fenced) [[unlikely]]
          return detail::no_fence(detail::binding_at_once);
      ibv_mw_bind binding{.wr_id = tag.id,
                          .send_flags = detail::flag_if(tag.signaled, IBV_SEND_SIGNALED) |
                                        detail::flag_if(options.fenced, IBV_SEND_FENCE),
                          .bind_info = part.native()};
      detail::assert_not_in_batch(native_qp());
      const int returned = ibv_bind_mw(native_qp(), native, &binding);
      if (returned != 0) [[unlikely]]
        return detail::post_failure(returned, detail::binding_at_once, 0, 0);
    }
    return part.remote(remote_key(native->rkey));
  }

  /// The minimum length of a receive.
  static constexpr std::size_t shortest_receive =
      Transport == transport::ud ? datagram_header_size : 0;

  detail::dependent<detail::queue_pair_data, Transport> data_;
};

/// A queue pair between `build` and its handshake.
template <transport Transport, receive_queue_kind Receives = receive_queue_kind::own,
          posting_interface Posting = posting_interface::standard>
using prepared_queue_pair = queue_pair<Transport, queue_pair_state::init, Receives, Posting>;
/// A queue pair after its handshake.
template <transport Transport, receive_queue_kind Receives = receive_queue_kind::own,
          posting_interface Posting = posting_interface::standard>
using connected_queue_pair =
    queue_pair<Transport, queue_pair_state::ready_to_send, Receives, Posting>;

}  // namespace verbspp
