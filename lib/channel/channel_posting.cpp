// SPDX-License-Identifier: Apache-2.0
/// \file
/// Posting of several receives, and marks of guarded memory.
#include <verbspp/channel/detail/channel_core.hpp>

#include <algorithm>
#include <utility>

namespace verbspp::detail {

result<void> channel_core::post_receives(ibv_sge* elements, receive_slot** slots,
                                         std::uint32_t& count) noexcept {
  const std::uint32_t wanted =
      std::min({std::exchange(count, 0), receives_.room(), most_receives_together});
  ibv_recv_wr requests[most_receives_together];
  std::uint32_t filled = 0;
  receive_slot* slot = receives_.has_room() ? &receives_.next() : nullptr;
  for (; filled < wanted && slot != nullptr; ++filled, slot = receives_.after(*slot)) {
    slots[filled] = slot;
    ibv_recv_wr& request = requests[filled];
    request.wr_id = wr_id_of(work_operation::receive, slot->id);
    request.next = &request + 1;
    request.sg_list = &elements[filled];
    request.num_sge = 1;
  }
  if (filled == 0) return success();
  requests[filled - 1].next = nullptr;
  const one_thread only(users_);
  ibv_recv_wr* rejected = nullptr;
  const int returned = ibv_post_recv(connection_.native(), requests, &rejected);
  if (returned == 0)
    count = filled;
  else if (rejected != nullptr)
    count = static_cast<std::uint32_t>(rejected - requests);
  handles_ += count;
  receives_.commit(slots, count);
  if (guard_.is_active())
    for (std::uint32_t i = 0; i < count; ++i) hide(*slots[i], native_of(elements[i], false));
  if (returned == 0) return success();
  return post_failure(returned, posting_receive, 1, connection_.capacities().max_receive_elements);
}

void channel_core::hide(receive_slot& slot, const native_elements& elements) noexcept {
  if (guard_.hide(place_of(slot), elements)) slot.notes |= receive_slot::hidden;
}

void channel_core::hide(std::uint64_t number, const native_elements& elements) noexcept {
  guard_.hide(sends_.place_of(number), elements);
}

void channel_core::note_batch_memory(const ibv_send_wr* requests, std::uint32_t count) noexcept {
  // A batch longer than the queue is refused later.
  const std::uint64_t end =
      std::min<std::uint64_t>(sends_.next() + count, sends_.completed() + sends_.places());
  for (std::uint64_t number = sends_.next(); number < end; ++number, ++requests) {
    native_elements elements;
    if (requests->opcode == IBV_WR_RDMA_READ || requests->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        requests->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      elements.range = requests->sg_list;
      elements.size = static_cast<std::size_t>(requests->num_sge);
    }
    guard_.note(sends_.place_of(number), elements);
  }
}

void channel_core::hide_batch(std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) guard_.hide(sends_.place_of(sends_.next() + i));
}

}  // namespace verbspp::detail
