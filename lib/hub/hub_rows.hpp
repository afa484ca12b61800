// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/hub_member.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/detail/pool_places.hpp>

#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// An entry in the table of a hub's channels: the channel whose id contains the entry's index, and
/// that channel's arrivals. A row that has arrivals to report is *ready*, and is in the list of
/// ready rows.
struct alignas(64) hub_row {
  static constexpr std::uint32_t none = UINT32_MAX;

  hub_member* member = nullptr;  ///< null if the row has no channel
  channel_id id{};               ///< the id of the current or last channel
  std::uint32_t next_free = none;
  /// The number of the queue pair, while the row is in a chain, and the reasons above it. So one
  /// comparison finds a row whose arrivals are to be reported.
  std::uint32_t key = 0;
  hub_row* next_linked = nullptr;  ///< in the chain
  hub_row* next_ready = nullptr;
  message_list messages{};
  bool has_news = false;
  bool is_ready = false;     ///< true if the row is in the list of ready rows
  bool is_outdated = false;  ///< the queue pair was destroyed in this turn
  // The reasons not to report the channel's arrivals.
  static constexpr std::uint32_t number_bits = 24;
  static constexpr std::uint32_t held = 1U << number_bits;       ///< until `release` or `admit`
  static constexpr std::uint32_t in_turn = 2U << number_bits;    ///< until `hub_turn::end`
  static constexpr std::uint32_t for_inbox = 4U << number_bits;  ///< keeps messages only, not news

  static_assert(queue_pair_number::maximum < held);

  [[nodiscard]] std::uint32_t number() const noexcept { return key & (held - 1); }
  void set_number(std::uint32_t number) noexcept { key = (key ^ this->number()) | number; }
  void keep(std::uint32_t reason) noexcept { key |= reason; }
  void end(std::uint32_t reason) noexcept { key &= ~reason; }
  /// True if the channel is not to be reported.
  [[nodiscard]] bool is_kept() const noexcept { return (key & (held | in_turn)) != 0; }
  [[nodiscard]] bool is_held() const noexcept { return (key & held) != 0; }
  [[nodiscard]] bool has_inbox() const noexcept { return (key & for_inbox) != 0; }
  [[nodiscard]] bool is_in_turn() const noexcept { return (key & in_turn) != 0; }
  [[nodiscard]] bool has_arrivals() const noexcept {
    return has_news || (!has_inbox() && !messages.is_empty());
  }
};

/// The rows of a hub's channels. The caller holds the hub's lock, or the process has one thread.
///
/// A row has a channel, is free, or will become free at the end of its turn. The number of a queue
/// pair leads to the row of its channel, and all other numbers lead to one more row, which is
/// always held and never has a channel. Each row that has arrivals to report is in the list of
/// ready rows; a row in the list may have lost them, or its channel, in the meantime.
class hub_rows {
 public:
  /// The maximum number of rows.
  static constexpr std::uint32_t most = UINT16_MAX;

  explicit hub_rows(std::uint32_t capacity) noexcept : capacity_(capacity) {}
  hub_rows(const hub_rows&) = delete;
  hub_rows& operator=(const hub_rows&) = delete;
  /// \returns false if memory is exhausted
  [[nodiscard]] bool allocate() noexcept;

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// The number of rows that have a channel.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] hub_row& operator[](std::uint32_t index) noexcept { return rows_.get()[index + 1]; }
  [[nodiscard]] hub_row& of(const hub_member& member) noexcept { return (*this)[member.id.index]; }
  /// Calls `function` with each row that has a channel.
  template <class Function>
  void for_each(Function function) noexcept {
    for (std::uint32_t i = 0; i < capacity_; ++i)
      if ((*this)[i].member != nullptr) function((*this)[i]);
  }

  /// Adds a channel, and assigns an id to it. \returns its row; null if all rows are taken
  [[nodiscard]] hub_row* add(hub_member& member) noexcept;
  /// Removes the channel of a row, which becomes free unless it is in a turn.
  void remove(hub_row& row) noexcept;
  /// Makes a row without a channel free.
  void free(hub_row& row) noexcept;

  /// Makes the number of a queue pair lead to this channel, and no other number.
  void set_number(std::uint32_t number, const hub_member& member) noexcept;
  /// Undoes `set_number`; a no-op if the channel has no number.
  void clear_number(const hub_member& member) noexcept;
  /// The row of the channel whose queue pair has this number; a row without a channel if there is
  /// none.
  [[nodiscard]] hub_row& find(std::uint32_t number) noexcept {
    hub_row* row = chain_of(number);
    while (row->number() != number && row->next_linked != nullptr) row = row->next_linked;
    return *row;
  }
  /// As `find`, but returns null unless the messages of the channel are to be reported.
  [[nodiscard, gnu::always_inline]] const hub_row* find_reported(
      std::uint32_t number) const noexcept {
    const hub_row* row = chains_.get()[number & mask_];
    while (row->key != number) [[unlikely]] {
      row = row->next_linked;
      if (row == nullptr) return nullptr;
    }
    return row;
  }

  // The reasons why a poll has more to do than to report the messages that it finds. The functions
  // of this class keep the first one up to date.
  static constexpr unsigned care_for_ready = 1;  ///< there are ready rows
  static constexpr unsigned care_for_calls = 2;  ///< calls may have been handed over
  /// The hub has no pool or has a table, memory is watched, or the queue is lost.
  static constexpr unsigned care_always = 4;
  [[nodiscard]] bool needs_care() const noexcept { return care_ != 0; }
  void add_care(unsigned reason) noexcept { care_ |= reason; }
  void end_care(unsigned reason) noexcept { care_ &= ~reason; }

  [[nodiscard]] bool has_ready() const noexcept { return first_ready_ != nullptr; }
  /// Appends a row that has arrivals to the list of ready rows, unless the row is in the list
  /// already, or its channel is not to be reported (`is_kept`).
  void note_ready(hub_row& row) noexcept {
    if (row.is_ready || row.is_kept()) return;
    row.is_ready = true;
    row.next_ready = nullptr;
    (first_ready_ == nullptr ? first_ready_ : last_ready_->next_ready) = &row;
    last_ready_ = &row;
    add_care(care_for_ready);
  }
  void note_news(hub_row& row) noexcept {
    row.has_news = true;
    note_ready(row);
  }
  /// Removes and returns the first ready row. \pre there is a ready row
  [[nodiscard]] hub_row& take_ready() noexcept {
    hub_row& first = *first_ready_;
    first_ready_ = first.next_ready;
    if (first_ready_ == nullptr) end_care(care_for_ready);
    first.is_ready = false;
    return first;
  }
  /// Finds the first channel in the list that has news, and clears its news. \returns the channel;
  /// null if no channel has news
  [[nodiscard]] hub_member* take_news() noexcept;

 private:
  /// The chain of the rows whose numbers have the same lower bits. Devices number queue pairs
  /// consecutively, or nearly so, so most chains have at most one of these rows. Each chain ends
  /// with the row without a channel.
  [[nodiscard]] hub_row*& chain_of(std::uint32_t number) noexcept {
    return chains_.get()[number & mask_];
  }

  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
  std::uint32_t first_free_ = 0;
  owned<hub_row[]> rows_{};     ///< the first one is for numbers that no channel has
  owned<hub_row*[]> chains_{};  ///< `mask_ + 1` chains
  std::uint32_t mask_ = 0;
  unsigned care_ = care_always;
  hub_row* first_ready_ = nullptr;
  hub_row* last_ready_ = nullptr;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
