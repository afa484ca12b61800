// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/inbox_list.hpp>
#include <verbspp/pool/detail/pool_places.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <cstdint>
#include <optional>
#include <utility>

// Instantiates the template while `inbox_state` is not hidden yet. Otherwise, g++ warns that the
// instance is more visible than its member.
static_assert(sizeof(verbspp::detail::owned<verbspp::detail::inbox_state>) == sizeof(void*));

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The names of the operations in error messages.
inline constexpr const char* taking_message = "next message of an inbox";
inline constexpr const char* opening_inbox = "inbox::open";

/// The state of an inbox. It is allocated separately from the inbox, because receives of the inbox
/// may finish after the inbox was destroyed.
struct [[gnu::visibility("hidden")]] inbox_state {
  /// True if this is the `wr_id` of a receive that is posted.
  [[nodiscard]] VERBSPP_DATA_PATH bool expects(std::uint64_t wr_id) const noexcept {
    return wr_id == tag && !places_posted.is_empty();
  }
  /// True if receives should be posted, because there is room for a whole batch.
  [[nodiscard]] bool is_due() const noexcept { return until_due < 0; }
  /// The number of places that are posted, or in `arrived`.
  [[nodiscard]] std::uint32_t in_use() const noexcept {
    return static_cast<std::uint32_t>(until_due + due_below);
  }
  /// The number of posted receives.
  [[nodiscard]] std::uint32_t posted() const noexcept { return in_use() - messages; }

  /// Counts places that the inbox uses from now on: those of receives that were posted, or of
  /// messages that the hub has received.
  VERBSPP_DATA_PATH void note_posted(std::uint32_t count) noexcept {
    until_due += static_cast<int>(count);
  }
  /// Removes and returns the place of the receive that completes next. The place still counts as in
  /// use: the caller then calls `inbox_list::deliver` or `note_ended`.
  /// \pre a receive is posted
  [[nodiscard]] VERBSPP_DATA_PATH pool_place& take_posted() noexcept {
    pool_place& place = places_posted.take_first();
    place.reset_wr_id();
    return place;
  }
  /// Records that the inbox no longer uses a place.
  VERBSPP_DATA_PATH void note_ended() noexcept { --until_due; }

  /// Takes the next message if one has arrived, but does not call `fill`.
  /// \param may_poll false if a poll has just found that there are no more completions
  [[nodiscard]] pool_place* take(bool may_poll = true) noexcept;
  /// As `take`, but also posts receives if that is due and a message was taken.
  [[nodiscard, gnu::noinline]] pool_place* take_and_fill(bool may_poll = true) noexcept;
  /// As `take`, but does not poll for completions.
  [[nodiscard]] pool_place* take_arrived() noexcept;
  /// As `take_arrived`, but does not take messages from the hub.
  [[nodiscard]] pool_place* take_listed() noexcept;
  /// Posts receives if that is due. If this fails, `poll` tries again, and returns the error once
  /// there are neither receives nor messages. \returns its argument, so that it can stay in
  /// registers
  [[nodiscard, gnu::noinline]] pool_place* after_filling(pool_place* taken) noexcept;
  /// Returns the message of a place. Posts receives if that is due.
  [[nodiscard]] result<message> message_in(pool_place& taken) noexcept;
  /// Posts receives in batches while there is room for a batch, and the pool has free places. If
  /// the hub posts the receives, only checks the state of the channel.
  [[nodiscard]] result<void> fill() noexcept;
  /// Posts receives. \returns the error if this fails while the inbox has neither receives nor
  /// messages
  [[nodiscard]] std::optional<error> refusal() noexcept;
  /// Implements `inbox::poll`.
  [[nodiscard]] std::optional<result<message>> next_message() noexcept;
  /// As `next_message`, but does not poll for completions.
  [[nodiscard]] std::optional<result<message>> next_arrived() noexcept;
  /// Implements `inbox::wait`, if no message has arrived.
  [[nodiscard]] result<pool_place*> wait_longer(call_limit limit) noexcept;
  /// The hint for a wait that has reached its limit.
  [[nodiscard]] const char* why_none() const noexcept;

  channel_core& core;
  message_pool pool;
  std::uint32_t depth;
  std::uint32_t refill;
  int due_below;  ///< a batch of receives is due while fewer places are in use
  /// The `wr_id` of all posted receives, which complete in the order of posting. The tag differs
  /// from the tags of other inboxes, and of earlier connections.
  std::uint64_t tag = 0;
  message_list places_posted{};  ///< the places of the posted receives, in order
  message_list arrived{};
  int until_due = -due_below;   ///< the number of places in use, minus `due_below`
  std::uint32_t messages = 0;   ///< the number of messages in `arrived`
  inbox_state* next = nullptr;  ///< in the channel's list of inboxes
  owned<inbox_state> itself{};  ///< null until the inbox is destroyed
  bool is_short = false;        ///< the pool had too few places for the hub's receives
  bool is_shared = false;       ///< the hub posts the receives; depth and refill are unused
};

inline std::uint64_t inbox_list::new_tag() noexcept {
  return inbox_receive << operation_at | tags_++;
}

inline void inbox_list::add(inbox_state& inbox) noexcept {
  inbox.tag = new_tag();
  inbox.next = std::exchange(first_, &inbox);
  ++count_;
}

inline void inbox_list::remove(owned<inbox_state> destroyed) noexcept {
  inbox_state& inbox = *destroyed.get();
  if (shared_ == &inbox) shared_ = nullptr;
  --count_;
  inbox.itself = std::move(destroyed);
  delete_if_finished(inbox);
}

inline void inbox_list::delete_if_finished(inbox_state& inbox) noexcept {
  if (!inbox.itself || inbox.posted() != 0) return;
  inbox_state** link = &first_;
  while (*link != &inbox) link = &(*link)->next;
  *link = inbox.next;
  const owned<inbox_state> finished = std::move(inbox.itself);
}

VERBSPP_DATA_PATH inbox_state* inbox_list::find(std::uint64_t wr_id) const noexcept {
  inbox_state* each = first_;
  while (each != nullptr && !each->expects(wr_id)) each = each->next;
  return each;
}

inline std::uint32_t inbox_list::posted() const noexcept {
  std::uint32_t sum = 0;
  for (const inbox_state* each = first_; each != nullptr; each = each->next) sum += each->posted();
  return sum;
}

inline bool inbox_list::has_messages() const noexcept {
  const inbox_state* each = first_;
  while (each != nullptr && each->messages == 0) each = each->next;
  return each != nullptr;
}

template <class Fail>
void inbox_list::flush(Fail fail) noexcept {
  for (inbox_state* each = first_; each != nullptr;) {
    // If the inbox was destroyed, its state is deleted when its last receive fails. So the next
    // inbox is looked up first.
    inbox_state* const next = each->next;
    each->tag = new_tag();
    for (std::uint32_t left = each->posted(); left != 0; --left) fail(*each);
    each = next;
  }
}

VERBSPP_DATA_PATH void inbox_list::deliver(inbox_state& inbox, pool_place& place) noexcept {
  if (inbox.itself) [[unlikely]] {
    place.give_back();
    inbox.note_ended();
    return delete_if_finished(inbox);
  }
  ++inbox.messages;
  inbox.arrived.append(place);
}

VERBSPP_DATA_PATH pool_place& channel_core::receive_message(inbox_state& inbox,
                                                            const ibv_wc& completion) noexcept {
  pool_place& place = inbox.take_posted();
  receives_.note_left();
  place.fill(completion, {});
  return place;
}

VERBSPP_DATA_PATH pool_place* channel_core::collect_message(inbox_state& inbox,
                                                            bool& may_poll) noexcept {
  ibv_wc completions[completions_per_poll];
  int filled = 0;
  {
    const one_thread only(users_);
    filled = connection_.poll(completions);
    // The usual case is one message. It need not be put into the list of the inbox.
    if (filled == 1 && inbox.expects(completions->wr_id) && is_message(*completions) &&
        (completions->wc_flags & IBV_WC_WITH_INV) == 0) [[likely]]
      return &receive_message(inbox, *completions);
  }
  may_poll = complete_all(completions, filled);
  return nullptr;
}

VERBSPP_DATA_PATH pool_place* channel_core::take_message(inbox_state& inbox) noexcept {
  if (!inbox.arrived.is_empty() || sends_.needs_care()) [[unlikely]]
    return inbox.take_and_fill();
  bool may_poll = false;
  pool_place* const taken = collect_message(inbox, may_poll);
  if (taken == nullptr) [[unlikely]]
    return inbox.take_and_fill(may_poll);
  inbox.note_ended();
  if (inbox.is_due()) [[unlikely]]
    return inbox.after_filling(taken);
  return taken;
}

VERBSPP_DATA_PATH bool channel_core::collect(inbox_state& inbox, pool_place*& taken) noexcept {
  if (sends_.needs_care()) [[unlikely]]
    return collect_with_care();
  bool may_poll = false;
  taken = collect_message(inbox, may_poll);
  if (taken != nullptr) inbox.note_ended();
  return may_poll;
}

VERBSPP_DATA_PATH pool_place* inbox_state::take(bool may_poll) noexcept {
  pool_place* taken = nullptr;
  while (may_poll && arrived.is_empty()) may_poll = core.collect(*this, taken);
  return taken != nullptr ? taken : take_arrived();
}

VERBSPP_DATA_PATH pool_place* inbox_state::take_arrived() noexcept {
  if (arrived.is_empty() && is_shared) is_short = core.take_shared_messages();
  return take_listed();
}

VERBSPP_DATA_PATH pool_place* inbox_state::take_listed() noexcept {
  if (arrived.is_empty()) return nullptr;
  --messages;
  note_ended();
  return &arrived.take_first();
}

VERBSPP_DATA_PATH result<message> inbox_state::message_in(pool_place& taken) noexcept {
  if (is_due()) [[unlikely]]
    static_cast<void>(fill());
  return result<message>(std::in_place, &taken, taken.message_size());
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
