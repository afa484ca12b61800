// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/detail/memory_guard.hpp>
#include <verbspp/channel/detail/open_scopes.hpp>
#include <verbspp/channel/detail/wr_id.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// What a channel knows of one receive, from its post until its result was taken. One cache line.
struct alignas(64) receive_slot {
  enum class state : std::uint8_t { free, posted, done };
  /// What has to be seen to besides the result; of a request that its handle alone waits for, none.
  enum note : std::uint8_t {
    in_scope = 1U << 0,
    unheld = 1U << 1,   ///< nobody will take the result
    keeping = 1U << 2,  ///< `memory` is to be let go
    hidden = 1U << 3,   ///< its memory is hidden from the program
    lost = 1U << 4,     ///< the device did not let go of its memory
  };

  [[nodiscard]] VERBSPP_DATA_PATH bool is_done() const noexcept { return is == state::done; }
  [[nodiscard]] bool is_lost() const noexcept { return (notes & lost) != 0; }
  [[nodiscard]] VERBSPP_DATA_PATH completed_work work() const noexcept {
    return {opcode, byte_count, flags, immediate};
  }

  std::uint64_t id;    ///< the slot's index below a count of its uses; of `wr_id`
  scope_state* scope;  ///< whose it is, if `in_scope`
  kept_memory memory;
  std::uint32_t next;  ///< the next free slot, of a free one

  // What came of it.
  std::uint32_t status;
  std::uint32_t vendor_code;
  std::uint32_t opcode;
  std::uint32_t byte_count;
  unsigned flags;
  __be32 immediate;

  state is;
  std::uint8_t notes;
  std::uint16_t connection;  ///< the lower bits of its generation, if it has failed
};

static_assert(sizeof(receive_slot) == 64 || sizeof(void*) != 8);

/// The receives of a channel, each of which has a slot: free, posted, or done, which is free again
/// when its result was taken.
class receive_slots {
 public:
  receive_slots() noexcept = default;
  receive_slots(const receive_slots&) = delete;
  receive_slots& operator=(const receive_slots&) = delete;

  // How much it takes.

  [[nodiscard]] result<void> allocate() noexcept;
  /// How many slots there are.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] static std::size_t index_of(const receive_slot& slot) noexcept {
    return static_cast<std::size_t>(slot.id) & no_slot;
  }
  /// How many requests the receive queue holds. 0 of a channel whose receives are shared.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  void set_capacity(std::uint32_t requests) noexcept { capacity_ = requests; }

  /// Takes requests from now on. None is outstanding.
  void open() noexcept {
    is_open_ = true;
    room_ = capacity_;
  }
  /// Takes none any more.
  void close() noexcept { is_open_ = false; }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_open() const noexcept { return is_open_; }
  /// None is outstanding any more.
  void empty_queue() noexcept { room_ = capacity_; }

  // Posting.

  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t room() const noexcept { return room_; }
  [[nodiscard]] std::uint32_t outstanding() const noexcept { return capacity_ - room_; }
  /// Whether there is room in the queue, and a slot.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_room() const noexcept {
    return room_ != 0 && free_ != no_slot;
  }
  /// The slot of the next receive; it stays free until `commit`. \pre `has_room`
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot& next() noexcept { return slots_[free_]; }
  /// The one behind it; null if there is none. \pre it is `next`, or behind that
  [[nodiscard]] receive_slot* after(const receive_slot& free) noexcept {
    return free.next == no_slot ? nullptr : &slots_[free.next];
  }
  /// The receive of `next` was posted.
  VERBSPP_DATA_PATH void commit(receive_slot& slot, scope_state* scope, bool is_held) noexcept {
    free_ = slot.next;
    --room_;
    slot.is = receive_slot::state::posted;
    slot.notes = is_held ? 0 : receive_slot::unheld;
    slot.scope = scope;
    if (scope == nullptr) return;
    slot.notes |= receive_slot::in_scope;
    ++scope->receives;
  }
  /// A receive that was posted keeps that memory from now on.
  VERBSPP_DATA_PATH static void keep(receive_slot& slot, const kept_memory& memory) noexcept {
    slot.memory = memory;
    slot.notes |= receive_slot::keeping;
  }

  // Completing.

  /// The receive that was posted with that `wr_id`; null if it is of a queue pair that the channel
  /// had before.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* find(std::uint64_t wr_id) const noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(wr_id) & no_slot;
    if (index >= size_ || slots_[index].id != (wr_id & below_operation) ||
        slots_[index].is != receive_slot::state::posted) [[unlikely]]
      return nullptr;
    return &slots_[index];
  }
  /// The receive has left the queue.
  VERBSPP_DATA_PATH void note_left() noexcept { ++room_; }
  /// It is done: the slot tells what came of it.
  VERBSPP_DATA_PATH void complete(receive_slot& slot, std::size_t place,
                                  memory_guard& guard) noexcept {
    slot.is = receive_slot::state::done;
    if (slot.notes == 0) return;
    if ((slot.notes & (receive_slot::keeping | receive_slot::hidden)) != 0) [[unlikely]]
      give_back_memory(slot, place, guard);
    if ((slot.notes & receive_slot::in_scope) != 0) --slot.scope->receives;
    if ((slot.notes & receive_slot::unheld) != 0) release(slot);
  }
  /// The result was taken.
  VERBSPP_DATA_PATH void release(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::free;
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    slot.id = (slot.id + one_use) & below_operation;
    slot.next = free_;
    free_ = index;
  }
  /// Calls `function` with the slot of each receive that is outstanding.
  template <class Function>
  void for_each_posted(Function function) noexcept {
    for (std::uint32_t i = 0; i < size_; ++i)
      if (slots_[i].is == receive_slot::state::posted) function(slots_[i]);
  }

 private:
  static void give_back_memory(receive_slot& slot, std::size_t place, memory_guard& guard) noexcept;

  receive_slot* slots_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t free_ = no_slot;  ///< the first of the free slots
  std::uint32_t room_ = 0;
  std::uint32_t capacity_ = 0;
  bool is_open_ = false;
  owned<receive_slot[]> owner_{};
};

}  // namespace verbspp::detail
