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
struct receive_slot;
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

  /// How many receives are posted.
  [[nodiscard]] std::uint32_t posted() const noexcept { return count_; }

 private:
  struct entry {
    detail::receive_slot* slot;
    std::uint32_t place;
  };

  inbox(detail::channel_core* core, message_pool pool, detail::owned<entry[]>&& entries,
        std::uint32_t depth, std::uint32_t refill) noexcept;
  [[nodiscard]] static result<inbox> open(detail::channel_core* core, const message_pool& pool,
                                          const inbox_options& options) noexcept;
  /// Whether there is room for a batch of receives, or none is posted at all.
  [[nodiscard]] bool is_due() const noexcept { return depth_ - count_ >= refill_ || count_ == 0; }
  /// Takes the oldest entry out.
  entry pop() noexcept;
  /// Posts receives in batches while there is room for one, and places.
  [[nodiscard]] result<void> fill() noexcept;
  [[nodiscard]] result<std::uint32_t> post_some(std::uint32_t wanted) noexcept;
  void leave() noexcept;

  detail::channel_core* core_;
  message_pool pool_;
  // The receives that are posted, in order: a ring.
  detail::owned<entry[]> entries_;
  std::uint32_t depth_;
  std::uint32_t refill_;
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace verbspp
