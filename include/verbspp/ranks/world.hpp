// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/refers_elsewhere.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/builder.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/exchange/exchanged_value.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/group/prepared_group.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/ranks/barrier_kind.hpp>
#include <verbspp/ranks/barrier_session.hpp>
#include <verbspp/ranks/bootstrap.hpp>
#include <verbspp/wait/waiting.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iosfwd>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace verbspp {

/// A value that can be passed to collective steps. It must be trivially copyable and default
/// constructible, have at most 256 bytes, and be neither an array, a pointer, a view, a result nor
/// an optional.
template <class Value>
concept CollectiveValue =
    detail::because(!detail::MayLackValue<Value>,
                    "this is a result or an optional, which may hold no value: get the value with "
                    ".value() or, from a result, with VERBSPP_TRY") &&
    detail::because(!detail::RefersElsewhere<Value>,
                    "collective steps of a world carry the bytes of the value itself, and those of "
                    "a pointer, a view or an optional may mean nothing to another rank: pass the "
                    "object itself") &&
    detail::because(
        std::is_trivially_copyable_v<Value> && std::is_default_constructible_v<Value> &&
            !std::is_array_v<Value> && sizeof(Value) <= 256,
        "collective steps of a world are for trivially copyable, default constructible values of "
        "at most 256 bytes, and not for arrays (use a std::array); send larger data with "
        "peers().scatter and peers().gather, or use the libraries that docs/groups.md names");

namespace detail {

/// Builds the channels of a world that was joined lazily.
class channel_source {
 public:
  channel_source() noexcept = default;
  channel_source(const channel_source&) = delete;
  channel_source& operator=(const channel_source&) = delete;
  virtual ~channel_source() = default;
  [[nodiscard]] virtual result<channel> build() const noexcept = 0;
};

template <class Builder>
class channel_source_of final : public channel_source {
 public:
  explicit channel_source_of(const Builder& like) noexcept : like_(like) {}
  [[nodiscard]] result<channel> build() const noexcept override {
    VERBSPP_TRY(made, like_.build());
    return channel(std::move(made));
  }

 private:
  Builder like_;
};

}  // namespace detail

/// A group of processes or threads, called ranks, which are numbered from 0 to size - 1. Each rank
/// is connected to all ranks, including itself: from the start or, with `join_lazily`, on first
/// use.
///
///     VERBSPP_TRY(launched, tcp_bootstrap::from_environment(30s));
///     VERBSPP_TRY(all, world::join(std::move(launched), domain.build_channel(), 30s));
///     VERBSPP_TRYV(all.peers()[(all.rank() + 1) % all.size()].send({.elements = news}));
///     VERBSPP_TRYV(all.barrier(5s));
///
/// Barriers and collective steps use RDMA writes into memory that the world owns, and do not
/// consume any receives that the program has posted. All ranks that take part have to call them in
/// the same order, with the same list of ranks. Each step has a limit. On a rank whose limit is
/// reached, the call returns an error that names the missing ranks; on other ranks, the call may
/// return a different result. The next step succeeds when all ranks call it, provided that broken
/// connections have been repaired (`mend`). The limit applies to the whole call: the last quarter
/// of it, at most 1.2 s, is reserved for finding out which ranks are missing.
///
/// A rank takes part in one step at a time. The calls block until this rank's part of the step has
/// ended, except for `start_barrier`, which returns a session for an event loop.
///
/// With `join_lazily`, two ranks are connected when one of them first uses the other: in an
/// operation on several peers, a scope, a barrier or another step, or `peers().connect`. To be
/// connected, the other rank has to answer. It answers while it is itself connecting to a rank,
/// while it waits in a step or polls a session, and in `peers().wait`, `peers().poll`, `serve`
/// and `mend`. It does not answer while it waits for a single channel, for instance in
/// `peers()[1].receive`.
///
/// A move-only owner. The size of a moved-from world is 0, and its functions that return a result
/// fail. Call a last barrier on all ranks before any of them destroys its world. Thread rule: as
/// for a group.
class world {
 public:
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  world(world&& other) noexcept;
  world& operator=(world&& other) noexcept;
  ~world();

  /// Connects each rank to all ranks with channels that have the parameters of the builder `like`.
  /// On success, all channels are connected at both ends.
  /// \errors as `prepare_group`, `group::handshake` and `registered_buffer::allocate`; those of the
  /// bootstrap, with the rank if there is one; `invalid_input` if the bootstrap's size is 0 or
  /// above 65,535, or its rank is not below its size; `mismatch` or `invalid_input` if another rank
  /// uses an incompatible version of the library, or another size; `not_supported` for a builder of
  /// UC channels
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join(Model bootstrap,
                                                const channel_builder<Transport, Given>& like,
                                                const wait_limit& limit) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched, Transport));
    VERBSPP_TRY(prepared, prepare_group(like, launched.size()));
    return connect(std::move(launched), std::move(prepared), like.domain(), like.hub_for(1).waiting,
                   limit);
  }

  /// Joins with one receive queue for all ranks, which is kept filled from the pool. `peers().wait`
  /// returns the messages. With a pool, the memory for receives does not grow with the number of
  /// ranks.
  /// \errors as `join` without a pool
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join(Model bootstrap,
                                                const channel_builder<Transport, Given>& like,
                                                const message_pool& pool, const wait_limit& limit,
                                                const group_options& options = {}) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched, Transport));
    VERBSPP_TRY(prepared, prepare_group(like, launched.size(), pool, options));
    return connect(std::move(launched), std::move(prepared), like.domain(), like.hub_for(1).waiting,
                   limit);
  }

  /// Connects this rank only to itself at first. Any other rank is connected when it is first used,
  /// and only once even if both ends start to connect at the same time. On success, all ranks have
  /// called this function. The number of queue pairs grows with the number of peers that are used.
  /// The following grow with the number of ranks: the completion queue, which has room for all of
  /// them; the world's memory, of which 1.1 KiB for each rank is registered for barriers and steps;
  /// and the memory of the bootstrap.
  ///
  /// A rank that does not answer in time is reported as `timed_out`, with its number; the next use
  /// tries to connect it again.
  /// \errors as `join`; `not_supported` if the maximum size of a datagram is less than 512 bytes
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join_lazily(
      Model bootstrap, const channel_builder<Transport, Given>& like,
      const wait_limit& limit) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched, Transport));
    VERBSPP_TRY(prepared, prepare_group(like, 0, {.spare = launched.size()}));
    return connect_later(std::move(launched), group(std::move(prepared)), like, limit);
  }
  /// Joins lazily, with one receive queue for all ranks.
  /// \errors as `join_lazily` without a pool
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join_lazily(
      Model bootstrap, const channel_builder<Transport, Given>& like, const message_pool& pool,
      const wait_limit& limit, group_options options = {}) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched, Transport));
    options.spare += launched.size();
    VERBSPP_TRY(prepared, prepare_group(like, 0, pool, options));
    return connect_later(std::move(launched), group(std::move(prepared)), like, limit);
  }

  /// In a world that was joined lazily, answers connection requests that other ranks have sent.
  /// This function does not wait for requests. Call it every few milliseconds while other ranks may
  /// be connecting, unless the program waits in another call that answers. When a rank sends its
  /// first request, this call gets that rank's data from the bootstrap, which may take up to 200
  /// ms, and resolves its address. If that fails, no new rank is answered for one second.
  void serve() noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// The channels to all ranks, by rank. They belong to the world; do not move them out of it.
  /// Otherwise, steps with ranks whose channels were moved fail (`not_connected`), and a group that
  /// was moved out of a lazily joined world must not be used after the world was destroyed.
  /// \pre the world was not moved from
  [[nodiscard]] group& peers() noexcept;
  /// A readable name for the given rank, which contains its host and its process. In a world that
  /// was joined lazily, it is empty until the two ranks begin to connect.
  [[nodiscard]] std::string_view name(std::uint32_t rank) const noexcept;

  /// Sends this rank's value to all ranks, and returns the values of all ranks, in the order of the
  /// ranks. As in an exchange, a value can be a number, text, a named structure, a handle to remote
  /// memory, or a tuple of these. This call uses the bootstrap, so it is meant for setup.
  /// \errors those of the bootstrap, with the rank if there is one; `invalid_input` if the bytes
  /// that a rank sent do not represent such a value; for handles to remote memory, those of
  /// `remote_memory::decode`
  template <class Value>
  [[nodiscard]] group_result<std::vector<Value>> exchange(const Value& mine,
                                                          const wait_limit& limit) {
    using values = detail::exchanged_values<Value>;
    static_assert(values::largest <= 65536,
                  "each rank can exchange at most 64 KiB; send larger data through peers()");
    std::vector<std::byte> bytes(values::largest);
    detail::field_writer out(bytes);
    values::write(out, mine);
    std::vector<std::byte> all(values::largest * size());
    std::vector<std::size_t> sizes(size());
    VERBSPP_TRYV(
        exchange_bytes(std::span<const std::byte>(bytes).first(out.size()), all, sizes, limit));
    std::vector<Value> theirs;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      detail::field_reader in(
          std::span<const std::byte>(all).subspan(rank * values::largest, sizes[rank]));
      auto read = values::read(in);
      if (!read.has_value()) return group_error(rank, read.assume_error(), 1);
      theirs.push_back(std::move(read).assume_value());
    }
    return theirs;
  }

  /// Waits until all ranks, or all ranks in the list, have called this function.
  /// \errors Each failed rank has its own error: `timed_out` or `cancelled` if it had not done its
  /// part when the limit was reached; `timed_out` if it has left this step and reached a later one.
  /// A rank that is lost before the limit has the error that broke the connection to it, or an
  /// error of the kind that other ranks have reported; ranks that aborted the step because of that
  /// rank then have no error. A rank that has reported that it cannot do its part has an error of
  /// the kind that it has reported. `mismatch` for a rank that is at a different step;
  /// `not_connected` if the program has removed the world's channel to the rank, or replaced it by
  /// a different channel; in a world that was joined lazily, those of `group::connect`. Errors
  /// without a rank: `resource_exhausted`; those of posting; `not_connected` if there is no list,
  /// and the program has moved the group out of the world; `invalid_input` if the list contains a
  /// rank twice, contains a rank that is not below the size, or lacks this rank; `busy` if another
  /// step of this rank is in progress, in which case nothing happens.
  group_results barrier(const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  group_results barrier(const peer_list& ranks, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  /// Starts a barrier of all ranks, or of all ranks in the list, and does not wait for them (see
  /// `barrier_session::poll`). The session continues the barrier from an event loop, and returns
  /// the same results. Other ranks may call `barrier` or `start_barrier`.
  ///
  ///     VERBSPP_CO_TRY(session, all.start_barrier(5s));
  ///     VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
  ///
  /// \errors `busy` if another step is in progress; `invalid_input` for a list that `barrier`
  /// refuses; `not_connected` if there is no list, and the program has moved the group out of the
  /// world; `resource_exhausted`. After an error, the barrier was not started
  [[nodiscard]] result<barrier_session> start_barrier(
      const wait_limit& limit, barrier_kind kind = barrier_kind::by_size) noexcept;
  [[nodiscard]] result<barrier_session> start_barrier(
      const peer_list& ranks, const wait_limit& limit,
      barrier_kind kind = barrier_kind::by_size) noexcept;
  /// A barrier inside a scope of `peers()`. This rank takes part only after all requests that were
  /// posted through the scope have finished, within the scope's limit. When the barrier has
  /// succeeded, all data that other ranks wrote through their scopes before the barrier has
  /// therefore arrived.
  /// \errors as for the barriers above; if a request of the scope has failed, the error of that
  /// request, with its peer. In that case, this rank does not take part, and notifies the others.
  group_results barrier(group_scope& behind, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  group_results barrier(group_scope& behind, const peer_list& ranks, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;

  /// Returns the values of all ranks, in the order of the ranks, on every rank. It uses
  /// dissemination: n log n messages in log n rounds.
  /// \errors as `barrier`, for the first rank that failed
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<std::vector<Value>> all_gather(const Value& mine,
                                                            const wait_limit& limit) {
    std::vector<Value> all(size());
    VERBSPP_TRYV(all_gather_bytes(std::as_bytes(std::span(&mine, 1)),
                                  std::as_writable_bytes(std::span(all)), limit));
    return all;
  }
  /// On the rank `root`, returns the values of all ranks, in the order of the ranks. On the other
  /// ranks, returns an empty vector. Each of the other ranks sends one message to the root. Once
  /// connected, such a rank waits for the root only while the root has read neither of the rank's
  /// two previous values.
  /// \errors as `all_gather`; `invalid_input` if `root` is not a rank
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<std::vector<Value>> gather(const Value& mine, std::uint32_t root,
                                                        const wait_limit& limit) {
    std::vector<Value> all(rank() == root ? size() : 0);
    VERBSPP_TRYV(gather_bytes(std::as_bytes(std::span(&mine, 1)),
                              std::as_writable_bytes(std::span(all)), root, limit));
    return all;
  }
  /// Combines the values of all ranks with `combine`, and returns the same bytes on every rank. It
  /// uses a binomial tree, first up and then down: 2 (n - 1) messages in 2 log n rounds.
  ///
  /// The order of combination depends only on the number of ranks. `combine(left, right)` combines
  /// the values of adjacent ranks: ((0 1) (2 3)) ((4 5) 6) for seven ranks. `combine` therefore
  /// need not be commutative. If it is associative, the result does not depend on the order.
  /// `combine` is called during the step. If it throws, this function throws the same exception,
  /// and the other ranks are notified that this rank has aborted the step (`cancelled`).
  /// \errors as `all_gather`
  template <class Value, class Combine>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<Value> all_reduce(const Value& mine, Combine combine,
                                               const wait_limit& limit) {
    const auto combine_bytes = [](void* with, std::byte* into, const std::byte* right) {
      Value both[2]{};
      std::memcpy(&both[0], into, sizeof(Value));
      std::memcpy(&both[1], right, sizeof(Value));
      const Value combined = (*static_cast<Combine*>(with))(both[0], both[1]);
      std::memcpy(into, &combined, sizeof(Value));
    };
    Value total = mine;
    VERBSPP_TRYV(all_reduce_bytes(std::as_writable_bytes(std::span(&total, 1)), combine_bytes,
                                  std::addressof(combine), limit));
    return total;
  }
  /// Returns the value of the rank `root` on every rank. It uses a binomial tree: n - 1 messages in
  /// log n rounds. Once connected, a rank returns as soon as it has forwarded the value, and does
  /// not wait for late ranks. However, it is never more than two values ahead of a rank to which it
  /// sends.
  /// \errors as `all_gather`; `invalid_input` if `root` is not a rank
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<Value> broadcast(const Value& mine, std::uint32_t root,
                                              const wait_limit& limit) {
    Value value = mine;
    VERBSPP_TRYV(broadcast_bytes(std::as_writable_bytes(std::span(&value, 1)), root, limit));
    return value;
  }

  /// Reconnects broken connections, no matter which end has detected the failure. All ranks have to
  /// call this function. Afterwards, all ranks agree on the steps that they have performed with
  /// each other, even if a rank has left out some steps. If the program has replaced one of the
  /// world's channels, or has connected it to a different peer, this function leaves that channel
  /// unchanged while it is connected at both ends, and steps still do not use it.
  /// \errors those of the bootstrap, `channel::renew` and `handshake`, with the rank if there is
  /// one; `mismatch` or `invalid_input` if another rank uses an incompatible version of the
  /// library; `busy` if a step of this rank is in progress; `not_connected` if the program has
  /// moved the group out of the world; `resource_exhausted`
  [[nodiscard]] group_result<void> mend(const wait_limit& limit) noexcept;

  friend std::ostream& operator<<(std::ostream& out, const world& w);

 private:
  class state;
  explicit world(detail::owned<state> made) noexcept;

  [[nodiscard]] static result<void> check(any_bootstrap& launched, transport of_channels) noexcept;
  [[nodiscard]] static group_result<world> connect(any_bootstrap launched, prepared_group prepared,
                                                   const protection_domain& domain,
                                                   wait_mode waiting,
                                                   const wait_limit& limit) noexcept;
  template <class Builder>
  [[nodiscard]] static group_result<world> connect_later(any_bootstrap launched, group peers,
                                                         const Builder& like,
                                                         const wait_limit& limit) noexcept {
    const Builder in_hub = like.hub(peers.hub());
    detail::owned<detail::channel_source> source(new (std::nothrow)
                                                     detail::channel_source_of<Builder>(in_hub));
    return connect_later(std::move(launched), std::move(peers), std::move(source), like.domain(),
                         like.of_queue_pairs(), like.hub_for(1).waiting, limit);
  }
  [[nodiscard]] static group_result<world> connect_later(
      any_bootstrap launched, group peers, detail::owned<detail::channel_source> source,
      const protection_domain& domain, const detail::queue_pair_settings& like, wait_mode waiting,
      const wait_limit& limit) noexcept;
  /// Publishes this rank's value, and gets the values of all ranks and their sizes. `all` is
  /// divided into equal parts, one for each rank.
  [[nodiscard]] group_result<void> exchange_bytes(std::span<const std::byte> mine,
                                                  std::span<std::byte> all,
                                                  std::span<std::size_t> sizes,
                                                  const wait_limit& limit) noexcept;
  [[nodiscard]] group_results all_gather_bytes(std::span<const std::byte> mine,
                                               std::span<std::byte> all,
                                               const wait_limit& limit) noexcept;
  [[nodiscard]] group_results gather_bytes(std::span<const std::byte> mine,
                                           std::span<std::byte> all, std::uint32_t root,
                                           const wait_limit& limit) noexcept;
  [[nodiscard]] group_results broadcast_bytes(std::span<std::byte> value, std::uint32_t root,
                                              const wait_limit& limit) noexcept;
  [[nodiscard]] group_results all_reduce_bytes(std::span<std::byte> value,
                                               void (*combine)(void* context, std::byte* into,
                                                               const std::byte* right),
                                               void* context, const wait_limit& limit);

  detail::owned<state> state_;
};

}  // namespace verbspp
