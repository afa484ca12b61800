// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/refers_elsewhere.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/builder.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/message_pool.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/exchange/exchanged_value.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/group/prepared_group.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/ranks/barrier_kind.hpp>
#include <verbspp/ranks/bootstrap.hpp>

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

/// What collective steps carry: small, and its bytes are all there is to it.
template <class Value>
concept CollectiveValue =
    detail::because(!detail::MayLackValue<Value>,
                    "this is a result, which may hold an error: take the value out of it, by "
                    ".value() or VERBSPP_TRY") &&
    detail::because(!detail::RefersElsewhere<Value>,
                    "collective steps of a world carry the bytes of the value itself, and a "
                    "pointer or view means nothing to another rank: give them what it refers to") &&
    detail::because(
        std::is_trivially_copyable_v<Value> && std::is_default_constructible_v<Value> &&
            !std::is_array_v<Value> && sizeof(Value) <= 256,
        "collective steps of a world are for trivially copyable values of at most 256 bytes; more "
        "travels by peers().scatter and gather, or by the libraries that docs/groups.md names");

namespace detail {

/// Builds the channels of a world that is joined lazily.
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

/// Processes, or threads, that know each other by ranks: 0 to size - 1, each connected to all, and
/// to itself.
///
///     VERBSPP_TRY(launched, tcp_bootstrap::from_environment(30s));
///     VERBSPP_TRY(all, world::join(std::move(launched), domain.build_channel(), 30s));
///     VERBSPP_TRYV(all.peers()[(all.rank() + 1) % all.size()].send({.elements = news}));
///     VERBSPP_TRYV(all.barrier(5s));
///
/// Barriers and collective steps are by RDMA writes into memory of the world's own, and leave alone
/// what the program sends and receives. They are called by all ranks that they are for, in the
/// same order, with the same list of ranks. Each has a limit; what it ends says which ranks were
/// missing, of which the others' results tell nothing: each rank has its own. The next step works
/// when the ranks are there again, once what was broken is mended (`mend`). The limit bounds the
/// whole call: its last quarter, at most 1.2 s, is for finding out which ranks are missing.
///
/// With `join_lazily`, two ranks are connected when one of them uses the other for the first time:
/// by work for several peers, in a scope, a barrier or another step, or by `peers().connect`. The
/// other end answers while it connects itself, waits in a step or in `peers().wait`, or calls
/// `serve`; waits for one channel, as `peers()[1].receive`, answer nobody.
///
/// A move-only owner; one that was moved from has size 0, and does nothing else. Let all ranks come
/// to a last barrier before one goes. Thread rule: as a group.
class world {
 public:
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  world(world&& other) noexcept;
  world& operator=(world&& other) noexcept;
  ~world();

  /// Connects all ranks to all, by channels as that builder builds them. When it returns, all are
  /// connected, at both ends.
  /// \errors as `prepare_group`, `group::handshake`, and those of the bootstrap, with the rank;
  /// `invalid_input` for a bootstrap whose rank is not below its size, or whose size is 0 or above
  /// 65,535
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join(Model bootstrap,
                                                const channel_builder<Transport, Given>& like,
                                                const wait_limit& limit) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched));
    VERBSPP_TRY(prepared, prepare_group(like, launched.size()));
    return connect(std::move(launched), std::move(prepared), like.domain(), like.hub_for(1).waiting,
                   limit);
  }

  /// The same with one receive queue for all, which is kept filled from the pool: what arrives,
  /// `peers().wait` hands out, and the memory for receives does not grow with the number of ranks.
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join(Model bootstrap,
                                                const channel_builder<Transport, Given>& like,
                                                const message_pool& pool, const wait_limit& limit,
                                                const group_options& options = {}) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched));
    VERBSPP_TRY(prepared, prepare_group(like, launched.size(), pool, options));
    return connect(std::move(launched), std::move(prepared), like.domain(), like.hub_for(1).waiting,
                   limit);
  }

  /// Connects nobody yet but this rank to itself: each of the others at its first use, once, also
  /// when both start. When it returns, all ranks have come. Queue pairs grow with the peers that
  /// are used. With the number of ranks grow the completion queue, which has room for all of them,
  /// the memory for barriers and steps, 1.1 KiB registered for each, and what the bootstrap holds.
  ///
  /// A rank that does not answer in time is a `timed_out` with its number, and is called again at
  /// the next use.
  /// \errors as `join`; `not_supported` where a datagram has less than 512 bytes
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join_lazily(
      Model bootstrap, const channel_builder<Transport, Given>& like,
      const wait_limit& limit) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched));
    VERBSPP_TRY(prepared, prepare_group(like, 0, {.spare = launched.size()}));
    return connect_later(std::move(launched), group(std::move(prepared)), like, limit);
  }
  /// The same with one receive queue for all.
  template <class Model, transport Transport, queue_pair_parameter_set Given>
    requires Bootstrap<Model>
  [[nodiscard]] static group_result<world> join_lazily(
      Model bootstrap, const channel_builder<Transport, Given>& like, const message_pool& pool,
      const wait_limit& limit, group_options options = {}) noexcept {
    any_bootstrap launched(std::move(bootstrap));
    VERBSPP_TRYV(check(launched));
    options.spare += launched.size();
    VERBSPP_TRY(prepared, prepare_group(like, 0, pool, options));
    return connect_later(std::move(launched), group(std::move(prepared)), like, limit);
  }

  /// Answers ranks that connect to this one, if it was joined lazily; waits for none of them. For
  /// those that wait for nothing else, every few milliseconds while others may be connecting. Of a
  /// rank that calls for the first time it asks the bootstrap, which may take 200 ms; where that
  /// did not suffice, no new one is answered for a second.
  void serve() noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// The channels to all ranks, by rank: the world's, to be used there, not moved out. \pre it was
  /// not moved from
  [[nodiscard]] group& peers() noexcept;
  /// What a rank is to be called for people: its host and process. Empty of one that this rank was
  /// never connected to.
  [[nodiscard]] std::string_view name(std::uint32_t rank) const noexcept;

  /// What each rank gives, by rank: numbers, text, structures with a name, handles of remote
  /// memory, and tuples of these, as in an exchange. By the bootstrap, so it is for setting up.
  /// \errors those of the bootstrap, with the rank; `invalid_input` for what is no such value
  template <class Value>
  [[nodiscard]] group_result<std::vector<Value>> exchange(const Value& mine,
                                                          const wait_limit& limit) {
    using values = detail::exchanged_values<Value>;
    static_assert(values::largest <= 65536, "at most 64 KiB; send the rest through the peers");
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

  /// Returns when all ranks, or all of the list, have called it.
  /// \errors by rank: `timed_out` and `cancelled` of those that were missing when the limit came;
  /// what broke the connection to one that is gone, before the limit, and of its kind what others
  /// have told of such a one, instead of those who left because of it; `not_connected` of one under
  /// whose number the program has put a channel of its own. Without a rank: `resource_exhausted`,
  /// and this rank does not come then; `invalid_input` for a list that has a rank twice, one beyond
  /// the size, or not this one
  group_results barrier(const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  group_results barrier(const peer_list& ranks, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  /// The same inside a scope of `peers()`, behind all that was posted through it: that has
  /// finished, for which the limit is that of the scope, before this rank comes to the barrier, at
  /// each rank that calls this one, so what they wrote is there when it returns.
  /// \errors as above; if something that was posted has failed, that, by its peer: this rank does
  /// not come then, which the others are told
  group_results barrier(group_scope& behind, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;
  group_results barrier(group_scope& behind, const peer_list& ranks, const wait_limit& limit,
                        barrier_kind kind = barrier_kind::by_size) noexcept;

  /// The values of all ranks, by rank; each rank gets all. By dissemination: n log n messages, log
  /// n steps.
  /// \errors as `barrier`, of the first rank that failed; `mismatch` of one that is at another step
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<std::vector<Value>> all_gather(const Value& mine,
                                                            const wait_limit& limit) {
    std::vector<Value> all(size());
    VERBSPP_TRYV(all_gather_bytes(std::as_bytes(std::span(&mine, 1)),
                                  std::as_writable_bytes(std::span(all)), limit));
    return all;
  }
  /// The values of all ranks, by rank, at `root`; nothing at the others, which don't wait for it,
  /// but for what they gave it two values ago. Each sends it one message.
  /// \errors as `all_gather`; `invalid_input` for a root that is no rank
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<std::vector<Value>> gather(const Value& mine, std::uint32_t root,
                                                        const wait_limit& limit) {
    std::vector<Value> all(rank() == root ? size() : 0);
    VERBSPP_TRYV(gather_bytes(std::as_bytes(std::span(&mine, 1)),
                              std::as_writable_bytes(std::span(all)), root, limit));
    return all;
  }
  /// What `combine` makes of all ranks' values, the same bytes at each. By a binomial tree, up and
  /// down: 2 (n - 1) messages, 2 log n steps.
  ///
  /// The order depends on the size alone. A value is always combined with that of the ranks behind
  /// it, `combine(left, right)`, neighbours first: ((0 1) (2 3)) ((4 5) 6) for seven ranks. So
  /// `combine` has to be associative for the result to be that of all orders; it need not be
  /// commutative. It is called in the middle of the step: what it throws, this throws, and the
  /// others are told that this rank has given the step up (`cancelled`).
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
  /// The value of `root`, at each. By a binomial tree: n - 1 messages, log n steps. A rank is done
  /// when it has passed the value on, and doesn't wait for who comes late; but none is more than
  /// two values ahead of another to which it gives them.
  /// \errors as `all_gather`; `invalid_input` for a root that is no rank
  template <class Value>
    requires CollectiveValue<Value>
  [[nodiscard]] group_result<Value> broadcast(const Value& mine, std::uint32_t root,
                                              const wait_limit& limit) {
    Value value = mine;
    VERBSPP_TRYV(broadcast_bytes(std::as_writable_bytes(std::span(&value, 1)), root, limit));
    return value;
  }

  /// Connects again what was broken, whichever end has seen that: all ranks have to call it. What
  /// they have counted of each other's steps is the same again, also where one has left out some.
  /// Channels that the program has put there, or connected to somebody else, are left alone while
  /// they are connected: no step goes by them afterwards either.
  /// \errors those of the bootstrap, `channel::renew` and `handshake`, with the rank
  [[nodiscard]] group_result<void> mend(const wait_limit& limit) noexcept;

  friend std::ostream& operator<<(std::ostream& out, const world& w);

 private:
  class state;
  explicit world(detail::owned<state> made) noexcept;

  [[nodiscard]] static result<void> check(any_bootstrap& launched) noexcept;
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
  /// The values of all, each at its rank times the largest size, with their sizes.
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
