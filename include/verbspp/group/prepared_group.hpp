// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/builder.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/work/operations.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The options of a group. The options of its channels are set by their builder.
struct group_options {
  /// The number of members that can be added later, for which room is reserved now.
  std::uint32_t spare = 0;
  /// With a pool: the maximum number of receives that are kept posted to the shared receive queue.
  std::uint32_t receives = 256;
};

/// A group before its handshake. It has an endpoint for each peer. Without a pool, it also accepts
/// receive requests, so that these are posted before the peers' first messages arrive.
///
/// A move-only owner. Thread rule: as for a group.
class prepared_group {
 public:
  /// The number of peers.
  [[nodiscard]] std::uint32_t size() const noexcept { return group_.size(); }
  /// This end's endpoint for the peer with this number. \pre the number is below `size()`
  [[nodiscard]] struct endpoint endpoint(std::uint32_t peer) const noexcept {
    return group_[peer].endpoint();
  }
  /// Posts a receive for a message from this peer. The group must not have a pool.
  /// \errors those of `prepared_channel::post_receive`
  [[nodiscard]] result<pending<>> post_receive(std::uint32_t peer,
                                               const receive_operation& operation) noexcept {
    return group_[peer].post_receive(operation);
  }
  /// Opens an inbox for this peer's messages. If the group has a pool, `pool` must be the same one;
  /// otherwise, the inbox keeps the peer's receive queue filled from `pool`.
  /// \errors those of `inbox::open`
  [[nodiscard]] result<inbox> open_inbox(std::uint32_t peer, const message_pool& pool,
                                         inbox_options options = {}) noexcept {
    return inbox::open(group_[peer], pool, options);
  }

  /// Connects to all peers. `remotes[n]` is the endpoint of peer n. The call consumes the prepared
  /// group, so if the handshake with one peer fails, the whole group is destroyed. To continue with
  /// the other peers, write `group peers(std::move(prepared))` and `peers.handshake(remotes)`.
  /// \errors those of `group::handshake`
  [[nodiscard]] group_result<group> handshake(std::span<const struct endpoint> remotes) && noexcept;
  template <class Group = prepared_group>
    requires(detail::because(!std::is_same_v<Group, prepared_group>,
                             "the handshake consumes the prepared group: write "
                             "std::move(prepared).handshake(remotes)"))
  void handshake(std::span<const struct endpoint>) &;
  /// Converts to a group whose members are still prepared.
  explicit operator group() && noexcept { return std::move(group_); }

  /// Used by `prepare_group`.
  explicit prepared_group(group prepared) noexcept : group_(std::move(prepared)) {}

 private:
  group group_;
};

namespace detail {

template <class Builder>
[[nodiscard]] result<prepared_group> prepare_group(const Builder& like, std::uint32_t peers,
                                                   const message_pool* pool,
                                                   const group_options& options) noexcept {
  hub_options size = like.hub_for(std::uint64_t{peers} + options.spare);
  if (pool != nullptr) {
    size.receives = options.receives;
    size.completions += std::min(options.receives, UINT32_MAX - size.completions);
  }
  VERBSPP_TRY(hub, pool != nullptr ? channel_hub::create(like.domain(), *pool, size)
                                   : channel_hub::create(like.domain(), size));
  VERBSPP_TRY(made, group::create(hub));
  const Builder builder = like.hub(hub);
  for (std::uint32_t number = 0; number < peers; ++number) {
    VERBSPP_TRY(member, builder.build());
    VERBSPP_TRYV(made.put(number, channel(std::move(member))));
  }
  return prepared_group(std::move(made));
}

}  // namespace detail

/// Prepares a group of `peers` channels, which are built with the parameters of the builder `like`.
/// The channels share one completion queue, which has room for all of their requests. Each channel
/// has its own receive queue.
///
///     VERBSPP_TRY(prepared, prepare_group(domain.build_channel().max_send_work_requests(64), 3));
///
/// \errors those of `channel_builder::build` and `channel_hub::create`
template <transport Transport, queue_pair_parameter_set Given>
[[nodiscard]] result<prepared_group> prepare_group(const channel_builder<Transport, Given>& like,
                                                   std::uint32_t peers,
                                                   const group_options& options = {}) noexcept {
  return detail::prepare_group(like, peers, nullptr, options);
}
/// Like `prepare_group` without a pool, but all peers share one receive queue, which is kept filled
/// from the pool. `group::wait` returns the messages that arrive.
template <transport Transport, queue_pair_parameter_set Given>
[[nodiscard]] result<prepared_group> prepare_group(const channel_builder<Transport, Given>& like,
                                                   std::uint32_t peers, const message_pool& pool,
                                                   const group_options& options = {}) noexcept {
  return detail::prepare_group(like, peers, &pool, options);
}

}  // namespace verbspp
