// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/detail/pool_places.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <cstdint>
#include <memory>

namespace verbspp::detail {

/// A thread's turn with one channel of a hub: until the turn ends, no other thread gets that
/// channel. A turn without a hub is empty. The static functions are those that the hub's table of
/// clients (`hub_clients`) calls.
struct hub_turn {
  hub_reference hub{};
  channel_id id{};
  // The client's messages that arrived before the turn. No other thread accesses them.
  message_list messages{};

  /// Makes the hub own its table. From now on, the hub holds back the arrivals of each new channel
  /// until `admit` is called for it.
  [[nodiscard]] static result<void> keep(const hub_reference& hub,
                                         std::unique_ptr<void, void (*)(void*)> table) noexcept;
  /// From now on, `end` returns false until the channel of the turn is destroyed.
  static void close_table(const hub_reference& hub) noexcept;
  /// Stops holding back the arrivals of a channel that was added to the table, and reports the
  /// channel, so that its client gets a turn.
  static void admit(const hub_reference& hub, std::uint32_t index) noexcept;
  [[nodiscard]] static result<hub_turn> wait(const hub_reference& hub, call_limit limit) noexcept;
  /// Like `wait`, but never blocks: the turn is empty if no channel has arrivals.
  [[nodiscard]] static result<hub_turn> poll(const hub_reference& hub) noexcept;
  /// Takes the turn of the client with this index. If that turn has already been taken, the
  /// result contains only the channel's id. If there is no such client, the result is empty.
  [[nodiscard]] static hub_turn of(const hub_reference& hub, std::uint32_t index) noexcept;
  /// Sleeps for a moment, during which another thread may end a turn.
  static void pause() noexcept;
  /// Returns the next message that arrived before the turn; empty if there is none.
  [[nodiscard]] message next_message() noexcept;
  /// \returns false if the table is closed: the caller then has to destroy the channel, and call
  /// this function again
  [[nodiscard]] bool end() noexcept;
};

}  // namespace verbspp::detail
