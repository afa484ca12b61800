// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/message.hpp>
#include <verbspp/channel/message_pool.hpp>

#include <cstdint>
#include <optional>

namespace verbspp {

class channel;
class prepared_channel;

namespace detail {
class channel_core;
struct inbox_state;
}  // namespace detail

/// How an inbox fills a receive queue.
struct inbox_options {
  /// How many receives it keeps posted; 0 is as many as the channel's receive queue takes.
  std::uint32_t depth = 0;
  /// So many are posted together, with one doorbell: 1 to 64, and at most half the depth.
  std::uint32_t refill = 16;
};

/// Keeps a channel's receive queue filled from a pool, and hands out what arrives, in order.
///
///     VERBSPP_TRY(inbox, inbox::open(prepared, pool));
///     ... handshake
///     VERBSPP_TRY(request, inbox.wait());
///
/// Opened before the handshake, it has receives ready for the peer's first message. It does not
/// allocate per message; a message that is dropped, or was sent on, makes room for another. Where
/// the pool has no place left, it goes on with what is posted, and fills the queue once places have
/// come back: at a later call of `next` or `wait`.
///
/// When the channel breaks, messages that had arrived are still handed out, all other places go
/// back to the pool, and then `next` and `wait` say why. After `channel::renew` the inbox goes on
/// with the new connection, at the next call: before the handshake, call `next` once.
///
/// A move-only owner. It may outlive its channel; destroyed before that it leaves its receives
/// posted, and what arrives there is dropped. Thread rule: as its channel.
class inbox {
 public:
  /// \errors `invalid_input` for a channel that is empty, or takes its receives from a shared
  /// receive queue, and for a pool that was moved from; `not_connected` for one that is broken or
  /// closed; `resource_exhausted`; as `channel::post_receive`
  [[nodiscard]] static result<inbox> open(channel& of, const message_pool& pool,
                                          inbox_options options = {}) noexcept;
  [[nodiscard]] static result<inbox> open(prepared_channel& of, const message_pool& pool,
                                          inbox_options options = {}) noexcept;

  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;
  inbox(inbox&& other) noexcept;
  inbox& operator=(inbox&& other) noexcept;
  ~inbox();

  /// The next message, if one has arrived; never blocks.
  /// \errors why the channel is broken; `invalid_input` if the inbox was moved from
  [[nodiscard]] std::optional<result<message>> next() noexcept;
  /// Waits for the next message, until the limit, or the channel's default one. The limit ends this
  /// call only: the receives stay posted, since the pool owns their memory.
  /// \errors as `next`; `timed_out`; `cancelled` if a stop was requested
  [[nodiscard]] result<message> wait(call_limit limit = call_limit::of_channel()) noexcept;

  /// The number of receives that are posted now.
  [[nodiscard]] std::uint32_t posted() const noexcept;

 private:
  explicit inbox(detail::owned<detail::inbox_state>&& state) noexcept;
  [[nodiscard]] static result<inbox> open(detail::channel_core& core, const message_pool& pool,
                                          const inbox_options& options) noexcept;
  static constexpr std::uint32_t nothing = UINT32_MAX;
  /// Takes the next message if one has arrived. \returns its place, or `nothing`
  [[nodiscard]] std::uint32_t take() noexcept;
  [[nodiscard]] result<message> message_in(std::uint32_t place) const noexcept;
  /// Posts receives in batches while there is room for one, and places.
  [[nodiscard]] result<void> fill() noexcept;
  [[nodiscard]] result<message> wait_longer(call_limit limit) noexcept;
  void leave() noexcept;

  detail::owned<detail::inbox_state> state_;  ///< null if it was moved from
};

}  // namespace verbspp
