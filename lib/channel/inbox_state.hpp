// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/receive_batch.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/pool_places.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/channel/message_pool.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The names of the operations in error messages.
inline constexpr const char* taking_message = "next message of an inbox";
inline constexpr const char* opening_inbox = "inbox::open";

/// The state of an inbox. It is allocated separately from the inbox, because receives of the inbox
/// may finish after the inbox was destroyed.
struct [[gnu::visibility("hidden")]] inbox_state {
  /// The `wr_id` of the receive that will complete next. If no receive is posted, no request has
  /// this `wr_id`.
  [[nodiscard]] std::uint64_t next_wr_id() const noexcept { return tag | places_posted.first; }
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
  /// The `wr_id` of the posted receives, without their places. It differs from the tags of other
  /// inboxes, and of earlier connections.
  std::uint64_t tag = 0;
  message_list places_posted{};  ///< the places of the posted receives, in order
  message_list arrived{};
  std::uint32_t messages = 0;  ///< the number of messages in `arrived`
  std::uint32_t posted = 0;
  inbox_state* next = nullptr;  ///< in the channel's list of inboxes
  owned<inbox_state> itself{};  ///< null until the inbox is destroyed
  bool is_short = false;        ///< the pool had too few places for the hub's receives
  bool is_shared = false;       ///< the hub posts the receives; depth, refill and batch are unused
};

VERBSPP_DATA_PATH std::uint32_t channel_core::take_posted(inbox_state& inbox) noexcept {
  pool_places& places = *inbox.pool.places();
  const std::uint32_t place = inbox.places_posted.take_first(places);
  if (places.is_watched()) [[unlikely]]
    device_returns(reinterpret_cast<std::uintptr_t>(places.at(place)), places.place_size());
  --inbox.posted;
  --inbox_receives_;
  receives_.note_left();
  return place;
}

VERBSPP_DATA_PATH std::uint32_t channel_core::receive_message(inbox_state& inbox,
                                                              const ibv_wc& completion) noexcept {
  const std::uint32_t place = take_posted(inbox);
  inbox.pool.places()->fill(place, completed_work(completion), {});
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
    if (filled == 1 && completions->wr_id == inbox.next_wr_id() &&
        completions->status == IBV_WC_SUCCESS && (completions->wc_flags & IBV_WC_WITH_INV) == 0)
        [[likely]] {
      place = receive_message(inbox, *completions);
      return false;
    }
  }
  return complete_all(completions, filled);
}

}  // namespace verbspp::detail

namespace verbspp {

VERBSPP_DATA_PATH std::uint32_t inbox::take(detail::inbox_state& mine) noexcept {
  std::uint32_t place = nothing;
  while (mine.arrived.is_empty() && mine.core.collect(mine, place)) {
  }
  return place != nothing ? place : take_arrived(mine);
}

VERBSPP_DATA_PATH std::uint32_t inbox::take_arrived(detail::inbox_state& mine) noexcept {
  if (mine.arrived.is_empty() && mine.is_shared) mine.is_short = mine.core.take_shared_messages();
  if (mine.arrived.is_empty()) return nothing;
  const std::uint32_t place = mine.arrived.take_first(*mine.pool.places());
  --mine.messages;
  mine.core.note_message_taken();
  return place;
}

}  // namespace verbspp

#pragma GCC visibility pop
