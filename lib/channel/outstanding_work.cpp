// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/detail/outstanding_work.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

namespace verbspp::detail {

result<void> outstanding_work::allocate(const queue_pair_capacities& granted) noexcept {
  // One for each receive that can be outstanding, and some for results that nobody took yet.
  slot_count_ = std::min(receives_ + std::clamp(receives_, 16U, 1024U), no_slot);
  slots_owner_ = owned<receive_slot[]>(new (std::nothrow) receive_slot[slot_count_]);
  slots_ = slots_owner_.get();
  // As many again for a batch, which is filled while all others may be on their way.
  const std::size_t records = 2 * std::bit_ceil(std::size_t{std::max(sends_, 1U)});
  records_owner_ = owned<send_record[]>(new (std::nothrow) send_record[records]);
  records_ = records_owner_.get();
  record_mask_ = records - 1;
  if (slots_ == nullptr || records_ == nullptr) return error::from_errno(ENOMEM, "build a channel");
  for (std::uint32_t i = 0; i < slot_count_; ++i) {
    slots_[i].id = one_use + i;
    slots_[i].next = i + 1 < slot_count_ ? i + 1 : no_slot;
    slots_[i].is = receive_slot::state::free;
  }
  free_ = 0;
  watches_ = device_memory_is_watched();
  if (!watches_) return success();
  targets_per_request_ = std::max({granted.max_send_elements, granted.max_receive_elements, 1U});
  targets_ =
      owned<target[]>(new (std::nothrow) target[(slot_count_ + records) * targets_per_request_]{});
  if (!targets_) return error::from_errno(ENOMEM, "build a channel");
  return success();
}

bool outstanding_work::is_idle() const noexcept {
  return sends_outstanding() == 0 && receives_outstanding() == 0;
}

/// The scope posts on, but not where it was.
void outstanding_work::begin_run(scope_state& scope, std::uint64_t number) noexcept {
  if (scope.run_first != scope.sends_end && scope.sends_end > completed_) {
    send_record& last = record_of(scope.sends_end - 1);
    last.scope = &scope;
    last.run_first = scope.run_first;
    runs_end_ = scope.sends_end;
  }
  scope.run_first = number;
}

/// Of a request that is on its way, so that its scope has not ended.
scope_state* outstanding_work::scope_of_send(std::uint64_t number) const noexcept {
  for (scope_state* scope = innermost_; scope != nullptr; scope = scope->outer)
    if (number >= scope->run_first && number < scope->sends_end) return scope;
  for (std::uint64_t last = number; last < runs_end_; ++last) {
    const send_record& noted = records_[last & record_mask_];
    if (noted.number == last && noted.scope != nullptr)
      return noted.run_first <= number ? noted.scope : nullptr;
  }
  return nullptr;
}

scope_state* outstanding_work::open_scope_of(request one) const noexcept {
  if (one.scope == 0) return nullptr;
  scope_state* scope = innermost_;
  while (scope != nullptr && scope->serial != one.scope) scope = scope->outer;
  return scope;
}

void outstanding_work::close_outer_scope(scope_state& scope) noexcept {
  for (scope_state** inner = &innermost_; *inner != nullptr; inner = &(*inner)->outer)
    if (*inner == &scope) {
      *inner = scope.outer;
      return;
    }
}

void outstanding_work::give_back_memory(receive_slot& slot) noexcept {
  if ((slot.notes & receive_slot::watched) != 0) show(targets_of(slot));
  if ((slot.notes & receive_slot::keeping) != 0 && !lost_memory_) slot.memory.let_go();
  slot.notes &= static_cast<std::uint8_t>(~(receive_slot::keeping | receive_slot::watched));
}

/// As `complete_sends`, where they have memory, or something needs attention.
void outstanding_work::complete_with_care(std::uint64_t end) noexcept {
  for (std::uint64_t number = completed_; number != end; ++number) {
    send_record& noted = records_[number & record_mask_];
    if (noted.number != number) continue;
    if (noted.is_watched) {
      --rarities_;
      show(targets_of(number));
    }
    if (noted.is_guarded) {
      --rarities_;
      unguard(targets_of(number));
    }
    if (noted.memory.keeper == nullptr) continue;
    --rarities_;
    if (!lost_memory_) noted.memory.let_go();
  }
  completed_ = end;
  if (!needs_attention_) succeeded_ = end;
  send_end_ = end + usable_sends_;
}

void outstanding_work::need_attention(bool is_needed) noexcept {
  if (needs_attention_ == is_needed) return;
  needs_attention_ = is_needed;
  succeeded_ = is_needed ? 0 : completed_;
  if (is_needed)
    ++rarities_;
  else
    --rarities_;
}

outstanding_work::target* outstanding_work::targets_of(const receive_slot& slot) const noexcept {
  const auto index = static_cast<std::size_t>(slot.id) & no_slot;
  return targets_.get() + index * targets_per_request_;
}

outstanding_work::target* outstanding_work::targets_of(std::uint64_t number) const noexcept {
  return targets_.get() + (slot_count_ + (number & record_mask_)) * targets_per_request_;
}

void outstanding_work::remember(target* first, const native_elements& elements) const noexcept {
  ibv_sge single;
  const ibv_sge* const range = elements.at(single);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < elements.size && count < targets_per_request_; ++i)
    if (range[i].length != 0) first[count++] = {range[i].addr, range[i].length};
  if (count < targets_per_request_) first[count] = {};
}

bool outstanding_work::hide(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_takes(first[i].address, first[i].length);
  return first->length != 0;
}

void outstanding_work::show(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_returns(first[i].address, first[i].length);
}

void outstanding_work::hide(receive_slot& slot, const native_elements& elements) noexcept {
  remember(targets_of(slot), elements);
  if (hide(targets_of(slot))) slot.notes |= receive_slot::watched;
}

void outstanding_work::hide(std::uint64_t number, const native_elements& elements) noexcept {
  remember(number, elements);
  hide(number);
}

void outstanding_work::remember(std::uint64_t number, const native_elements& elements) noexcept {
  // A batch longer than the queue is refused later.
  if (number - completed_ <= record_mask_) remember(targets_of(number), elements);
}

void outstanding_work::remember_batch(std::uint64_t first, const ibv_send_wr* requests,
                                      std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    const ibv_send_wr& posted = requests[i];
    native_elements elements;
    if (posted.opcode == IBV_WR_RDMA_READ || posted.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        posted.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      elements.range = posted.sg_list;
      elements.size = static_cast<std::size_t>(posted.num_sge);
    }
    remember(first + i, elements);
  }
}

void outstanding_work::hide(std::uint64_t number) noexcept {
  if (!hide(targets_of(number))) return;
  record_of(number).is_watched = true;
  ++rarities_;
}

void outstanding_work::guard(std::uint64_t number, const native_elements& sources) noexcept {
  target* const first = targets_of(number);
  remember(first, sources);
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_reads(first[i].address, first[i].length);
  record_of(number).is_guarded = true;
  ++rarities_;
}

void outstanding_work::unguard(const target* first) const noexcept {
  for (std::uint32_t i = 0; i < targets_per_request_ && first[i].length != 0; ++i)
    device_has_read(first[i].address, first[i].length);
}

void outstanding_work::hide_batch(std::uint64_t first, std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) hide(first + i);
}

}  // namespace verbspp::detail
