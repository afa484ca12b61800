// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

namespace verbspp {

class channel;
class prepared_channel;

namespace detail {
class awaited_message;
class caller_core;
class channel_core;
struct inbox_state;
}  // namespace detail

/// The options of an inbox.
struct inbox_options {
  /// The maximum number of posted receives and of arrived messages that have not been taken,
  /// counted together; 0 means the capacity of the channel's receive queue.
  std::uint32_t depth = 0;
  /// The number of receives that are posted together, with one doorbell. Limited to the range from
  /// 1 to 64, and to half the depth.
  std::uint32_t refill = 16;
};

/// Keeps a channel's receive queue filled from a pool, and returns the messages that arrive, in
/// order.
///
///     VERBSPP_TRY(inbox, inbox::open(prepared, pool));
///     ... handshake
///     VERBSPP_TRY(request, inbox.wait());
///
/// If the inbox is opened before the handshake, receives are ready for the peer's first message.
/// The inbox does not allocate memory for messages: each message that is dropped or forwarded makes
/// room for another. If the pool has no free place, the inbox continues with the receives that are
/// already posted. Once places have been returned to the pool, a later call of `poll` or `wait`
/// fills the queue again.
///
/// When the channel breaks, messages that had arrived are still returned, and all other places
/// return to the pool. After that, `poll` and `wait` return the cause. After `channel::renew`, the
/// next call of `poll` or `wait` posts receives for the new connection; so call `poll` once before
/// the handshake.
///
/// If the channel belongs to a hub with a pool, its messages arrive in that pool, and the hub posts
/// the receives: the options have no effect. The hub then keeps the messages of the channel for the
/// inbox, and reports only that the channel has news. Such a channel has one inbox at a time.
/// `wait` and `async_wait` work as usual.
///
/// A move-only owner. It may outlive its channel. If it is destroyed before the channel, its
/// receives stay posted, and the messages that they receive are dropped. Messages that arrive in a
/// hub's pool are from then on returned by the hub. Thread rule: as for its channel.
class inbox {
 public:
  /// Opens an inbox for a channel.
  /// \errors `invalid_input` if the pool was moved from or belongs to another protection domain, if
  /// the channel's hub has a different pool, or if the depth is above the capacity of the receive
  /// queue; `busy` if the channel's hub has a pool, and the channel has an inbox already;
  /// `not_connected` if the channel is empty or, unless its hub has a pool, if it is broken or
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

  /// Returns the next message if one has arrived; never blocks.
  /// \errors the reason why the channel is broken or closed; those of posting receives, once no
  /// receives are posted; `invalid_input` if the inbox was moved from
  [[nodiscard]] std::optional<result<message>> poll() noexcept;
  /// Used by the library only: like `poll`, but does not poll for completions.
  [[nodiscard]] std::optional<result<message>> next_arrived() noexcept;
  /// Waits for the next message. If no limit is given, the channel's default limit applies. The
  /// limit only ends this call: the receives stay posted, since the pool owns their memory.
  /// \errors as `poll` and `channel::wait`; `timed_out`; `cancelled` if a stop was requested
  [[nodiscard]] VERBSPP_DATA_PATH result<message> wait(
      call_limit limit = call_limit::of_channel()) noexcept {
    detail::pool_place* next = take();
    if (next == nullptr) [[unlikely]] {
      const result<detail::pool_place*> later = wait_longer(limit);
      if (!later.has_value()) return later.assume_error();
      next = later.assume_value();
      detail::expect(next != nullptr);
    }
    return result<message>(std::in_place, next, next->message_size());
  }

  /// Like `wait`, but awaits the next message in a coroutine; include `<verbspp/coroutine.hpp>`.
  /// `channel::poll` resumes the coroutine. If several coroutines wait, they get messages in the
  /// order in which they began to wait. The coroutine may be destroyed at any time, and the inbox
  /// may be moved; if the inbox is destroyed, the coroutine gets an error (`invalid_input`).
  [[nodiscard]] detail::awaited_message async_wait(
      const wait_limit& limit = detail::default_limit) noexcept;

  /// The descriptor for event loops (`EventSource`), which is the descriptor of the channel; -1 if
  /// the channel has none, or if the inbox was moved from. When it is readable, call `poll` until
  /// that returns an empty value or an error.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Like `channel::request_notification`.
  /// \errors in addition, `invalid_input` if the inbox was moved from
  [[nodiscard]] result<bool> request_notification() noexcept;
  /// The time by which the program has to call `poll`, and then `request_notification`. This is the
  /// channel's deadline, or, while the pool has too few free places for the receives, 1 ms from
  /// now, because returning a place to the pool wakes no thread.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

  /// The number of receives that are posted now; 0 if the hub posts them.
  [[nodiscard]] std::uint32_t posted() const noexcept;

  friend std::ostream& operator<<(std::ostream& out, const inbox& printed);

 private:
  friend detail::caller_core;  // takes the places of messages directly

  explicit inbox(detail::owned<detail::inbox_state>&& state) noexcept;
  [[nodiscard]] static result<inbox> open(detail::channel_core& core, const message_pool& pool,
                                          const inbox_options& options) noexcept;
  [[nodiscard]] static result<inbox> open_shared(detail::channel_core& core,
                                                 const message_pool& pool) noexcept;
  void leave() noexcept;
  /// Like `poll`, but returns the place of the message. Null also in case of an error, which
  /// `wait_longer` returns.
  [[nodiscard]] detail::pool_place* take() noexcept;
  /// Implements `wait`, if no message has arrived. \returns the place of the message; not the
  /// result of `wait`, so that the compiler can keep that in registers
  [[nodiscard]] result<detail::pool_place*> wait_longer(call_limit limit) noexcept;

  detail::owned<detail::inbox_state> state_;  ///< null if the inbox was moved from
};

}  // namespace verbspp
