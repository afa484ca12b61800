// SPDX-License-Identifier: Apache-2.0
#include <verbspp/core/detail/receive_slots.hpp>

#include <algorithm>
#include <cerrno>
#include <new>

namespace verbspp::detail {

result<void> receive_slots::allocate() noexcept {
  // One slot for each receive that can be outstanding, and more for results that have not been
  // taken yet.
  size_ = std::min(capacity_ + std::clamp(capacity_, 16U, 1024U), no_slot);
  owner_ = owned<receive_slot[]>(new (std::nothrow) receive_slot[size_]);
  slots_ = owner_.get();
  if (slots_ == nullptr) return error::from_errno(ENOMEM, "build a channel");
  for (std::uint32_t i = 0; i < size_; ++i) {
    slots_[i].id = one_use + i;
    slots_[i].next = i + 1 < size_ ? i + 1 : no_slot;
    slots_[i].is = receive_slot::state::free;
  }
  free_ = 0;
  return success();
}

void receive_slots::release_memory(receive_slot& slot, std::size_t place,
                                   memory_guard& guard) noexcept {
  if ((slot.notes & receive_slot::hidden) != 0) guard.show(place);
  if ((slot.notes & receive_slot::keeping) != 0) guard.release(slot.memory);
  slot.notes &= static_cast<std::uint8_t>(~(receive_slot::keeping | receive_slot::hidden));
}

}  // namespace verbspp::detail
