// SPDX-License-Identifier: Apache-2.0
#include "channel/inbox_state.hpp"
#include <verbspp/channel/detail/awaited_message.hpp>
#include <verbspp/channel/detail/awaited_work.hpp>

namespace verbspp::detail {

error awaited_message::gone() noexcept {
  return {error_kind::invalid_input, taking_message, "this inbox was destroyed or moved from"};
}

channel_core& awaited_message::polled() const noexcept {
  return static_cast<inbox_state*>(subject())->core;
}

bool awaited_message::look() noexcept {
  auto* const mine = static_cast<inbox_state*>(subject());
  if (mine == nullptr)
    taken_ = result<message>(gone());
  else if (has_expired())
    taken_ = result<message>(limit().failure(taking_message, "no message has arrived"));
  else
    taken_ = inbox::next_arrived(*mine);
  return taken_.has_value();
}

void awaited_message::wait() noexcept {
  static_cast<inbox_state*>(subject())->core.continue_when(*this);
}

condition::state awaited_message::test_arrival(condition& self) noexcept {
  auto* const mine = static_cast<inbox_state*>(self.subject());
  if (mine == nullptr) return state::met;
  if (mine->is_shared) mine->is_short = mine->core.take_shared_messages();
  if (!mine->arrived.is_empty()) return state::met;
  if (inbox::refusal(*mine)) return state::met;
  // No thread is woken when a place returns to the pool, so the pool has to be checked again soon.
  return mine->is_due() ? state::unmet_so_far : state::unmet;
}

void awaited_message::proceed(continuation& self) noexcept {
  auto& mine = static_cast<awaited_message&>(self);
  if (!mine.look()) return mine.wait();
  mine.waiting_.resume();
}

result<void> awaited_room::await_resume() noexcept {
  constexpr const char* waiting = "wait for room";
  const send_window& sends = core_.sends();
  if (!sends.is_open()) return core_.connection().refusal(waiting);
  if (wanted_ > sends.capacity())
    return error::above_limit(waiting, "requests", wanted_, sends.capacity(),
                              "the limit is the length of the send queue");
  if (sends.room() >= wanted_) return success();
  return limit().failure(waiting, "the send queue has remained full");
}

}  // namespace verbspp::detail
