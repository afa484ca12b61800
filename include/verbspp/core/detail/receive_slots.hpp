// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/core/detail/memory_guard.hpp>
#include <verbspp/core/detail/open_scopes.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/detail/wr_id.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// The state of one receive, from its posting until its result is taken. It fills one cache line.
struct alignas(64) receive_slot {
  enum class state : std::uint8_t { free, posted, done };
  /// Flags for the actions to take when the receive completes, in addition to storing the result.
  enum note : std::uint8_t {
    in_scope = 1U << 0,  ///< count the receive as finished in `scope`
    unheld = 1U << 1,    ///< no handle exists: free the slot
    keeping = 1U << 2,   ///< release `memory`
    hidden = 1U << 3     ///< remove the mark in the memory guard
  };

  [[nodiscard]] VERBSPP_DATA_PATH bool is_done() const noexcept { return is == state::done; }
  [[nodiscard]] VERBSPP_DATA_PATH completed_work work() const noexcept {
    return {opcode, byte_count, flags, immediate};
  }

  std::uint64_t id;    ///< lower bits: the index of the slot; upper bits: the number of its uses
  scope_state* scope;  ///< valid if `in_scope` is set
  kept_memory memory;
  union {
    std::uint32_t next;    ///< while this slot is free: the next free slot
    std::uint32_t number;  ///< while it is in use: the lower bits of the receive's number
  };

  // The result.
  std::uint32_t status;
  std::uint32_t vendor_code;
  std::uint32_t opcode;
  union {
    std::uint32_t byte_count;
    std::uint32_t queue_pair;  ///< after a failure: the number of the queue pair
  };
  unsigned flags;
  __be32 immediate;

  state is;
  std::uint8_t notes;
  std::uint16_t connection;  ///< after a failure: the lower bits of the channel's generation
};

static_assert(sizeof(receive_slot) == 64 || sizeof(void*) != 8);

/// The receives of a channel. Each has a slot, which is free, posted or done, and becomes free
/// again once the receive has completed and no handle is left. The receives of inboxes have no
/// slots, and are only counted.
class receive_slots {
 public:
  receive_slots() noexcept = default;
  receive_slots(const receive_slots&) = delete;
  receive_slots& operator=(const receive_slots&) = delete;

  // Capacity.

  [[nodiscard]] result<void> allocate() noexcept;
  /// The number of slots.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] static std::size_t index_of(const receive_slot& slot) noexcept {
    return static_cast<std::size_t>(slot.id) & no_slot;
  }
  /// The number of requests that the receive queue can hold; 0 if the channel uses a shared receive
  /// queue.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void set_capacity(std::uint32_t requests) noexcept { capacity_ = requests; }

  /// Accepts requests from now on. \pre no receive is outstanding
  void open() noexcept { is_open_ = true; }
  /// Accepts no more requests.
  void close() noexcept { is_open_ = false; }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_open() const noexcept { return is_open_; }
  /// Records that all receives have left the queue.
  void empty_queue() noexcept { completed_ = posted_; }

  // Posting.

  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t room() const noexcept {
    return capacity_ - outstanding();
  }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t outstanding() const noexcept {
    return static_cast<std::uint32_t>(posted_ - completed_);
  }
  /// True if the queue has room, and there is a free slot.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_room() const noexcept {
    return room() != 0 && free_ != no_slot;
  }
  /// Like `send_window::need_not_wait`.
  [[nodiscard]] VERBSPP_DATA_PATH bool need_not_wait() const noexcept {
    return has_room() || !is_open() || capacity_ == 0;
  }
  /// The slot for the next receive. The slot stays free until `commit` is called. \pre `has_room`
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot& next() noexcept { return slots_[free_]; }
  /// Marks the slot that `next` returned as posted. \param is_held true if the receive has a handle
  VERBSPP_DATA_PATH void commit(receive_slot& slot, scope_state* scope, bool is_held) noexcept {
    free_ = slot.next;
    slot.number = static_cast<std::uint32_t>(posted_++);
    slot.is = receive_slot::state::posted;
    slot.notes = 0;
    slot.scope = scope;
    if (!is_held) [[unlikely]]
      note_unheld(slot);
    if (scope == nullptr) return;
    slot.notes |= receive_slot::in_scope;
    ++scope->receives;
  }
  /// Records that a posted receive has no handle, or no longer has one.
  void note_unheld(receive_slot& slot) noexcept {
    slot.notes |= receive_slot::unheld;
    ++unheld_;
  }
  /// Counts receives of an inbox, which have no slots.
  void note_posted(std::uint32_t count) noexcept { posted_ += count; }
  /// Makes a posted receive keep this memory alive until the receive has finished.
  VERBSPP_DATA_PATH static void keep(receive_slot& slot, const kept_memory& memory) noexcept {
    slot.memory = memory;
    slot.notes |= receive_slot::keeping;
  }

  // Completions.

  /// The outstanding receive with this `wr_id`; null if there is none, for example because the
  /// receive belongs to an earlier queue pair of the channel.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* find(std::uint64_t wr_id) const noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(wr_id) & no_slot;
    if (index >= size_ || wr_id_of(work_operation::receive, slots_[index].id) != wr_id ||
        slots_[index].is != receive_slot::state::posted) [[unlikely]]
      return nullptr;
    return &slots_[index];
  }
  /// Counts a completed receive of an inbox, which has no slot.
  VERBSPP_DATA_PATH void note_left() noexcept { ++completed_; }
  /// The number of receives that have ever left the queue. They leave it in the order of posting.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t completed() const noexcept { return completed_; }
  /// The number of an outstanding receive. Receives are numbered in the order of posting.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t number_of(const receive_slot& slot) const noexcept {
    return completed_ + (slot.number - static_cast<std::uint32_t>(completed_));
  }
  /// Marks the slot as done, after the result was stored in it: the receive has left the queue.
  /// \param place the receive's place in the memory guard
  VERBSPP_DATA_PATH void complete(receive_slot& slot, std::size_t place,
                                  memory_guard& guard) noexcept {
    slot.is = receive_slot::state::done;
    ++completed_;
    if (slot.notes == 0) return;
    if ((slot.notes & (receive_slot::keeping | receive_slot::hidden)) != 0) [[unlikely]]
      release_memory(slot, place, guard);
    if ((slot.notes & receive_slot::in_scope) != 0) --slot.scope->receives;
    if ((slot.notes & receive_slot::unheld) == 0) return;
    --unheld_;
    release(slot);
  }
  /// The number of outstanding receives without handles, except those of inboxes.
  [[nodiscard]] std::uint32_t unheld() const noexcept { return unheld_; }
  /// Frees the slot of a receive that has completed.
  VERBSPP_DATA_PATH void release(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::free;
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    slot.id = (slot.id + one_use) & below_operation;
    slot.next = free_;
    free_ = index;
  }
  /// The number of receives, outstanding or done, that have a handle.
  [[nodiscard]] std::uint32_t held() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < size_; ++i)
      if (slots_[i].is != receive_slot::state::free &&
          (slots_[i].notes & receive_slot::unheld) == 0)
        ++count;
    return count;
  }
  /// Calls `function` with the slot of each outstanding receive.
  template <class Function>
  void for_each_posted(Function function) noexcept {
    for (std::uint32_t i = 0; i < size_; ++i)
      if (slots_[i].is == receive_slot::state::posted) function(slots_[i]);
  }

 private:
  static void release_memory(receive_slot& slot, std::size_t place, memory_guard& guard) noexcept;

  receive_slot* slots_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t free_ = no_slot;  ///< the first of the free slots
  std::uint32_t capacity_ = 0;
  std::uint32_t unheld_ = 0;
  bool is_open_ = false;
  std::uint64_t posted_ = 0;  ///< the number of receives that were ever posted
  std::uint64_t completed_ = 0;
  owned<receive_slot[]> owner_{};
};

}  // namespace verbspp::detail
