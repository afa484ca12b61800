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
  /// True if receives should be posted, because there is room for a whole batch.
  [[nodiscard]] bool is_due() const noexcept { return in_use() < due_below; }
  /// The number of places that are posted, or that contain messages that have not been taken.
  [[nodiscard]] std::uint32_t in_use() const noexcept { return posted + messages; }

  channel_core& core;
  message_pool pool;
  std::uint32_t depth;
  std::uint32_t refill;
  std::uint32_t due_below;  ///< a batch of receives is due while fewer places are in use
  receive_batch batch{};
  message_list arrived{};
  std::uint32_t messages = 0;  ///< the number of messages in `arrived`
  std::uint32_t posted = 0;
  bool is_short = false;   ///< the pool had too few places for the hub's receives
  bool is_shared = false;  ///< the hub posts the receives; depth, refill and batch are unused
};

VERBSPP_DATA_PATH std::uint32_t channel_core::receive_message(receive_slot& slot,
                                                              const ibv_wc& completion) noexcept {
  if ((slot.notes & receive_slot::hidden) != 0) [[unlikely]]
    guard_.show(place_of(slot));
  inbox_state& inbox = *slot.inbox;
  const std::uint32_t place = slot.memory.place;
  inbox.pool.places()->fill(place, completed_work(completion), {});
  --inbox.posted;
  --inbox_receives_;
  receives_.note_left();
  receives_.release(slot);
  return place;
}

VERBSPP_DATA_PATH bool channel_core::collect(inbox_state& inbox, std::uint32_t& place) noexcept {
  if (sends_.needs_care()) [[unlikely]]
    return collect_with_care();
  ibv_wc completions[16];
  int filled = 0;
  {
    const one_thread only(users_);
    filled = connection_.poll(completions);
    // The usual case is one message. It need not be put into the list of the inbox.
    if (filled == 1 && completions->status == IBV_WC_SUCCESS &&
        (completions->wc_flags & IBV_WC_WITH_INV) == 0) [[likely]] {
      receive_slot* const slot = receives_.find(completions->wr_id);
      if (slot != nullptr && slot->notes == receive_slot::in_inbox && slot->inbox == &inbox)
          [[likely]] {
        place = receive_message(*slot, *completions);
        return false;
      }
    }
  }
  return complete_all(completions, filled);
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
