// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a channel has in flight: requests of the send queue by their numbers, receives by their
/// slots, and the scopes that see them finished.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/detail/work_slot.hpp>
#include <verbspp/channel/detail/wr_id.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/capacities.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp::detail {

/// What is posted and has not been found finished, and what is finished and whose result nobody has
/// taken.
///
/// Requests of the send queue finish in the order in which they were posted, so each is a number:
/// those below `completed_` have finished, whether they were signaled or not. What a success tells,
/// its handle knows. A failure ends the connection, so that it is enough to know from which number
/// on requests have failed. Only what belongs to a scope, or keeps memory, has a record.
///
/// Receives tell something, and have slots, which their handles hold.
class outstanding_work {
 public:
  outstanding_work(const outstanding_work&) = delete;
  outstanding_work& operator=(const outstanding_work&) = delete;

  // How much is on its way, and how much there is room for.

  /// The number of the next request of the send queue.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t next_send() const noexcept { return next_send_; }
  /// The `wr_id` of the request of that number.
  template <work_operation Operation>
  [[nodiscard]] VERBSPP_DATA_PATH static std::uint64_t send_id(std::uint64_t number) noexcept {
    return wr_id_of(Operation, number);
  }
  /// Whether what the device writes to is hidden from the program meanwhile.
  [[nodiscard]] VERBSPP_DATA_PATH bool watches() const noexcept { return watches_; }
  /// How many requests the receive queue holds.
  [[nodiscard]] std::uint32_t receive_capacity() const noexcept { return receives_; }
  /// How many requests the send queue holds.
  [[nodiscard]] std::uint32_t send_capacity() const noexcept { return sends_; }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t send_room() const noexcept {
    return next_send_ < send_end_ ? send_end_ - next_send_ : 0;
  }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t receive_room() const noexcept {
    return receive_room_;
  }
  [[nodiscard]] std::uint32_t sends_outstanding() const noexcept {
    return static_cast<std::uint32_t>(next_send_ - completed_);
  }
  [[nodiscard]] std::uint32_t receives_outstanding() const noexcept {
    return receives_ - receive_room_;
  }

  // Streams, which post unsignaled requests.

  /// Whether so many requests at the end of the send queue, or more, may be unsignaled.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_unsignaled(std::uint64_t count) const noexcept {
    return signaled_end_ + count <= next_send_;
  }
  /// A stream has posted a signaled request.
  VERBSPP_DATA_PATH void note_signaled() noexcept { signaled_end_ = next_send_; }
  /// How many requests may follow each other unsignaled: half a queue, so that the other half is
  /// there while the signal is on its way.
  [[nodiscard]] std::uint32_t longest_unsignaled() const noexcept { return (sends_ + 1) / 2; }

  // What was posted together, and memory that it keeps.

  /// Notes what the requests, the first of which will have that number, will have the device write
  /// to.
  void remember_batch(std::uint64_t first, const ibv_send_wr* requests,
                      std::uint32_t count) noexcept;
  /// Memory that the request of that number owns or shares, which was just posted to the send
  /// queue, and is read by the device, is not to be written meanwhile.
  void guard(std::uint64_t number, const native_elements& sources) noexcept;
  /// So many requests of a scope, all signaled, were posted to the send queue.
  VERBSPP_DATA_PATH void commit(std::uint32_t posted, scope_state& scope) noexcept {
    if (posted == 0) return;
    const std::uint64_t first = next_send_;
    note_run(scope, first, posted);
    if (watches_) [[unlikely]]
      hide_batch(first, posted);
    next_send_ = first + posted;
  }

  /// A slot for a receive that is to be posted; null if there is none.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* reserve_receive() noexcept {
    if (free_ == no_slot) [[unlikely]]
      return nullptr;
    receive_slot& slot = slots_[free_];
    free_ = slot.next;
    return &slot;
  }
  /// The receive was posted, and fills that element; it counts as one with a handle.
  VERBSPP_DATA_PATH void commit_receive(receive_slot& slot, const ibv_sge& filled) noexcept {
    --receive_room_;
    slot.is = receive_slot::state::posted;
    slot.notes = 0;
    slot.scope = nullptr;
    open_handle();
    if (watches_) [[unlikely]]
      hide(slot, {.single = filled, .range = nullptr, .size = 1});
  }
  /// It was not posted.
  VERBSPP_DATA_PATH void give_back(receive_slot& slot) noexcept { release(slot); }
  /// The receive, which was posted, keeps that memory from now on.
  VERBSPP_DATA_PATH void keep(receive_slot& slot, const kept_memory& memory) noexcept {
    slot.memory = memory;
    slot.notes |= receive_slot::keeping;
  }
  /// The same of a request that has not been found finished.
  VERBSPP_DATA_PATH void keep(request& posted, const kept_memory& memory) noexcept {
    posted.keeps = true;
    if (posted.operation == work_operation::receive) return keep(*posted.slot, memory);
    record(posted.number, memory);
  }
  /// Whether the device has never let go of the memory of a receive that is done.
  [[nodiscard]] static bool has_lost(const receive_slot& slot) noexcept {
    return (slot.notes & receive_slot::lost) != 0;
  }

  // Handles and scopes.

  /// There is a handle of that request.
  VERBSPP_DATA_PATH void open_handle() noexcept { ++handles_; }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_done(const request& one) const noexcept {
    if (one.operation == work_operation::receive) return one.slot->is == receive_slot::state::done;
    return one.number < completed_;
  }
  /// Whether it is done, and nothing more is to be known than that it has succeeded.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_succeeded(const request& one) const noexcept {
    if (one.operation != work_operation::receive) return one.number < succeeded_;
    return one.slot->is == receive_slot::state::done && !needs_attention_;
  }
  /// What a request without a failure tells. The slot of a receive is free then.
  [[nodiscard]] VERBSPP_DATA_PATH completed_work success_of(const request& one) noexcept {
    if (one.operation != work_operation::receive)
      return {number_of(one.operation), one.bytes, 0, 0};
    const receive_slot& slot = *one.slot;
    const completed_work done(slot.opcode, slot.byte_count, slot.flags, slot.immediate);
    release(*one.slot);
    return done;
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_finished(const scope_state& scope) const noexcept {
    return (scope.sends_end <= completed_ || scope.sends_end == scope.run_first) &&
           scope.receives == 0;
  }

 protected:
  outstanding_work() noexcept = default;
  ~outstanding_work() = default;

  /// Makes room for all that can be in flight.
  [[nodiscard]] result<void> allocate(const queue_pair_capacities& granted) noexcept;
  [[nodiscard]] bool is_idle() const noexcept;

  [[nodiscard]] VERBSPP_DATA_PATH send_record& record_of(std::uint64_t number) noexcept {
    send_record& noted = records_[number & record_mask_];
    if (noted.number != number) noted = {.number = number};
    return noted;
  }
  VERBSPP_DATA_PATH void record(std::uint64_t number, const kept_memory& memory) noexcept {
    record_of(number).memory = memory;
    ++rarities_;
  }
  VERBSPP_DATA_PATH void note_run(scope_state& scope, std::uint64_t number,
                                  std::uint32_t count) noexcept {
    if (scope.sends_end != number) [[unlikely]]
      begin_run(scope, number);
    scope.sends_end = number + count;
  }

  VERBSPP_DATA_PATH void take_sends_until(std::uint64_t wr_id, bool are_plain = false) noexcept {
    const std::uint32_t earlier =
        static_cast<std::uint32_t>(wr_id) - static_cast<std::uint32_t>(completed_);
    // Unless it is of a queue pair that this channel had before.
    if (static_cast<std::int32_t>(earlier) >= 0) [[likely]]
      complete_sends(completed_ + earlier + 1, are_plain);
  }
  /// The requests below that number have left the send queue. They are plain where the caller knows
  /// that there are no rarities.
  VERBSPP_DATA_PATH void complete_sends(std::uint64_t end, bool are_plain = false) noexcept {
    if (!are_plain && rarities_ != 0) [[unlikely]]
      return complete_with_care(end);
    completed_ = succeeded_ = end;
    send_end_ = end + usable_sends_;
  }
  /// Null if it is of a queue pair that this channel had before.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* slot_of(std::uint64_t wr_id) const noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(wr_id) & no_slot;
    if (index >= slot_count_ || slots_[index].id != (wr_id & below_operation) ||
        slots_[index].is != receive_slot::state::posted) [[unlikely]]
      return nullptr;
    return &slots_[index];
  }
  VERBSPP_DATA_PATH void finish(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::done;
    if (slot.notes == 0) return;
    if ((slot.notes & (receive_slot::keeping | receive_slot::watched)) != 0) [[unlikely]]
      give_back_memory(slot);
    if ((slot.notes & receive_slot::in_scope) != 0) --slot.scope->receives;
    if ((slot.notes & receive_slot::unheld) != 0) release(slot);
  }
  VERBSPP_DATA_PATH void release(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::free;
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    slot.id = (slot.id + one_use) & below_operation;
    slot.next = free_;
    free_ = index;
  }

  // Out of line, since it happens rarely.

  [[nodiscard]] scope_state* open_scope_of(request one) const noexcept;
  void close_outer_scope(scope_state& scope) noexcept;
  void give_back_memory(receive_slot& slot) noexcept;
  void complete_with_care(std::uint64_t end) noexcept;
  void need_attention(bool is_needed) noexcept;
  void hide(receive_slot& slot, const native_elements& elements) noexcept;
  void hide(std::uint64_t number, const native_elements& elements) noexcept;
  void remember(std::uint64_t number, const native_elements& elements) noexcept;
  void hide(std::uint64_t number) noexcept;
  void begin_run(scope_state& scope, std::uint64_t number) noexcept;
  void hide_batch(std::uint64_t first, std::uint32_t count) noexcept;
  [[nodiscard]] scope_state* scope_of_send(std::uint64_t number) const noexcept;

  // What every request looks at comes first.
  std::uint64_t next_send_ = 1;     ///< the number of the next request of the send queue
  std::uint64_t send_end_ = 1;      ///< the first number that there is no room for
  std::uint64_t completed_ = 1;     ///< all below have finished
  std::uint64_t succeeded_ = 1;     ///< the same, but 0 while something needs attention
  std::uint64_t signaled_end_ = 1;  ///< while streams are open: behind their last signaled request
  std::uint64_t usable_sends_ = 0;  ///< how many the send queue takes; 0 while it takes none
  std::uint32_t handles_ = 0;       ///< that exist, and scopes that are open
  /// Requests of the send queue with memory, and one more while something needs attention, and of a
  /// channel of a hub always.
  std::uint32_t rarities_ = 0;
  scope_state* innermost_ = nullptr;
  send_record* records_ = nullptr;  ///< a ring, at the numbers' lower bits
  std::uint64_t record_mask_ = 0;
  std::uint64_t runs_end_ = 0;  ///< behind the last run that has a record
  receive_slot* slots_ = nullptr;
  std::uint32_t slot_count_ = 0;
  std::uint32_t free_ = no_slot;  ///< the first of the free slots
  std::uint32_t receive_room_ = 0;
  /// Handles may be of requests that have failed, or the channel is gone.
  bool needs_attention_ = false;
  bool watches_ = false;
  std::uint32_t sends_ = 0;     ///< how many the send queue takes
  std::uint32_t receives_ = 0;  ///< the same of the receive queue
  std::uint32_t scopes_ = 0;    ///< that there have been
  bool lost_memory_ = false;    ///< the device did not let go of what it had
  owned<receive_slot[]> slots_owner_;
  owned<send_record[]> records_owner_;

 private:
  // Where memory of requests is hidden from the program: what each receive writes to, by its slot,
  // and behind them what those of the send queue write to or read, by their records.
  struct target {
    std::uint64_t address;
    std::uint64_t length;
  };
  [[nodiscard]] target* targets_of(const receive_slot& slot) const noexcept;
  [[nodiscard]] target* targets_of(std::uint64_t number) const noexcept;
  void remember(target* first, const native_elements& elements) const noexcept;
  [[nodiscard]] bool hide(const target* first) const noexcept;
  void show(const target* first) const noexcept;
  void unguard(const target* first) const noexcept;
  std::uint32_t targets_per_request_ = 0;
  owned<target[]> targets_{};
};

}  // namespace verbspp::detail
