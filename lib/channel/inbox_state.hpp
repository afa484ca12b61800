// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/receive_batch.hpp"
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/pool_places.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/channel/message_pool.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The names of the operations in error messages.
inline constexpr const char* taking_message = "next message of an inbox";
inline constexpr const char* opening_inbox = "inbox::open";

/// The state of an inbox. It is allocated separately from the inbox, because the slots of the
/// inbox's receives point to it.
struct [[gnu::visibility("hidden")]] inbox_state {
  /// True if receives should be posted, because there is room for a whole batch, or no place is in
  /// use.
  [[nodiscard]] bool is_due() const noexcept {
    return !is_shared && (depth - in_use() >= refill || in_use() == 0);
  }
  /// The number of places that are posted, or that contain messages that have not been taken.
  [[nodiscard]] std::uint32_t in_use() const noexcept { return posted + messages; }

  channel_core& core;
  message_pool pool;
  std::uint32_t depth;
  std::uint32_t refill;
  receive_batch batch{};
  message_list arrived{};
  std::uint32_t messages = 0;  ///< the number of messages in `arrived`
  std::uint32_t posted = 0;
  bool is_short = false;   ///< the pool had too few places for the hub's receives
  bool is_shared = false;  ///< the hub posts the receives; depth, refill and batch are unused
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
