// SPDX-License-Identifier: Apache-2.0
/// \file
/// The inboxes of a channel and their receives, and the marking of guarded memory.
#include "core/channel_member.hpp"
#include "core/inbox_state.hpp"
#include <verbspp/core/detail/channel_core.hpp>

#include <algorithm>
#include <utility>

namespace verbspp::detail {

result<std::uint32_t> channel_core::post_receives(inbox_state& inbox,
                                                  std::uint32_t wanted) noexcept {
  const std::uint64_t tag = inbox.tag;
  message_list batch;
  std::uint32_t count = inbox.pool.places()->take(batch, std::min(wanted, receives_.room()),
                                                  [tag](pool_place& place) { place.wr_id = tag; });
  if (count == 0) return 0U;
  const one_thread only(users_);
  ibv_recv_wr* rejected = nullptr;
  const int returned = ibv_post_recv(connection_.native(), batch.first, &rejected);
  if (returned != 0) [[unlikely]]
    count = batch.drop_rejected(rejected);
  if (count != 0) inbox.places_posted.append(batch);
  inbox.note_posted(count);
  receives_.note_posted(count);
  if (returned == 0) return count;
  return post_failure(returned, posting_receive, 1, connection_.capacities().max_receive_elements);
}

void channel_core::open_inbox(inbox_state& inbox) noexcept {
  inboxes_.add(inbox);
  open_handle();
}

void channel_core::drop_inbox(owned<inbox_state> dropped) noexcept {
  if (inboxes_.shared() == dropped.get() && member_->hub) member_->hub->drop_inbox(*member_.get());
  inboxes_.remove(std::move(dropped));
  drop_handle();
}

bool channel_core::has_shared_messages() const noexcept {
  return member_ && member_->hub && member_->hub->receives();
}

result<void> channel_core::open_shared_inbox(inbox_state& inbox) noexcept {
  if (!member_->hub->has_pool(inbox.pool))
    return error(error_kind::invalid_input, opening_inbox,
                 "messages for this channel arrive in the pool of its hub: open the inbox with "
                 "that pool");
  if (!member_->hub->open_inbox(*member_.get()))
    return error(error_kind::busy, opening_inbox,
                 "a channel of a hub with a pool can have one inbox at a time, and this channel "
                 "already has one: destroy that one first");
  inbox.is_shared = true;
  inboxes_.set_shared(inbox);
  return success();
}

bool channel_core::take_shared_messages() noexcept {
  inbox_state* const inbox = inboxes_.shared();
  if (inbox == nullptr || !member_->hub) return false;
  bool is_short = false;
  const std::uint32_t count = member_->hub->take_messages(*member_.get(), inbox->arrived, is_short);
  inbox->note_posted(count);
  inbox->messages += count;
  return is_short;
}

void channel_core::hide(receive_slot& slot, const native_elements& elements) noexcept {
  if (guard_.hide(place_of(slot), elements)) slot.notes |= receive_slot::hidden;
}

void channel_core::hide(std::uint64_t number, const native_elements& elements) noexcept {
  guard_.hide(sends_.place_of(number), elements);
}

void channel_core::note_batch_memory(const ibv_send_wr* requests, std::uint32_t count) noexcept {
  // The loop stops when all of the guard's places for the send queue are in use. The guard has more
  // of these places than the queue has room for requests, so a batch that is cut short here will be
  // refused later.
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
