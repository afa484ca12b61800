// SPDX-License-Identifier: Apache-2.0
#include "core/inbox_state.hpp"
#include <verbspp/async/async_scope.hpp>
#include <verbspp/async/detail/awaited_lease.hpp>
#include <verbspp/async/detail/awaited_message.hpp>
#include <verbspp/async/detail/awaited_revocation.hpp>
#include <verbspp/async/detail/awaited_work.hpp>

namespace verbspp::detail {

error awaited_message::gone() noexcept {
  return {error_kind::invalid_input, taking_message, "this inbox was destroyed or moved from"};
}

channel_core& awaited_message::polled() const noexcept {
  return static_cast<inbox_state*>(subject())->core;
}

bool awaited_message::others_wait() const noexcept {
  return subject() != nullptr && polled().polls().has_condition_of(subject());
}

bool awaited_message::look() noexcept {
  auto* const mine = static_cast<inbox_state*>(subject());
  if (mine == nullptr)
    taken_ = result<message>(gone());
  else if (has_expired())
    taken_ = result<message>(limit().failure(taking_message, mine->why_none()));
  else
    taken_ = mine->next_arrived();
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
  if (mine->refusal()) return state::met;
  // Returning a place to the pool wakes no thread, so the pool has to be checked again soon.
  return mine->is_due() ? state::unmet_so_far : state::unmet;
}

void awaited_message::proceed(continuation& self) noexcept {
  auto& mine = static_cast<awaited_message&>(self);
  if (!mine.look()) return mine.wait();
  mine.waiting_.resume();
}

bool awaited_revocation::await_suspend(std::coroutine_handle<> waiting) noexcept {
  waiting_ = waiting;
  if (has_limit() && limit().has_passed()) {
    expire();
    return false;
  }
  was_posted_ = !must_line_up();
  if (was_posted_) return lease_.revoke_and_then(*this);
  line_up();
  return true;
}

void awaited_revocation::proceed(continuation& self) noexcept {
  auto& mine = static_cast<awaited_revocation&>(self);
  if (!mine.was_posted_) {
    mine.leave_line();
    mine.was_posted_ = !mine.has_expired();
    if (mine.was_posted_ && mine.lease_.revoke_and_then(mine)) return;
  }
  mine.waiting_.resume();
}

result<void> awaited_revocation::await_resume() noexcept {
  if (!has_expired()) return lease_.revoke(call_limit::of_channel());
  // No request was posted, and the limit has expired, so `revoke` uses a system call.
  if (!was_posted_) return lease_.revoke(limit());
  const std::optional<error> root = polled().root_of_failure();
  const result<void> done = lease_.revoke(call_limit::of_channel());
  return done.has_value() && root ? result<void>(*root) : done;
}

bool awaited_grant::await_suspend(std::coroutine_handle<> waiting) noexcept {
  waiting_ = waiting;
  const bool needs_room = request_.assume_value().by == lease_by::window;
  if (!needs_room || !must_line_up()) return post();
  line_up();
  return true;
}

void awaited_grant::proceed(continuation& self) noexcept {
  auto& mine = static_cast<awaited_grant&>(self);
  if (!mine.granted_) {
    mine.leave_line();
    if (!mine.has_expired() && mine.post()) return;
  }
  mine.waiting_.resume();
}

bool awaited_grant::post() noexcept {
  const call_limit until =
      has_limit() && !is_default() ? call_limit(limit()) : call_limit::of_channel();
  granted_.emplace(lease_owner::grant(polled(), request_.assume_value(), false, until, memory_));
  return granted_->has_value() && granted_->assume_value().grant_and_then(*this);
}

result<lease_owner> awaited_grant::take() noexcept {
  if (request_.has_error()) return request_.assume_error();
  if (!granted_) return channel_core::ended_before(limit());
  if (granted_->has_error()) return granted_->assume_error();
  const std::optional<error> root = has_expired() ? polled().root_of_failure() : std::nullopt;
  const result<void> done = granted_->assume_value().granted(polled());
  if (done.has_error()) return root ? *root : done.assume_error();
  return std::move(*granted_);
}

void awaited_scope::proceed(continuation& self) noexcept {
  auto& mine = static_cast<awaited_scope&>(self);
  if (!mine.has_expired() && !mine.has_finished()) return mine.polled().continue_when(mine);
  mine.waiting_.resume();
}

scope_result<void> awaited_scope::await_resume() noexcept {
  // If this wait's limit was reached, it becomes the scope's limit here, so that `failure` breaks
  // the channel immediately.
  const call_limit usual = state_.limit;
  if (has_expired()) state_.limit = limit();
  const auto failed = scope_.failure(false);
  state_.limit = usual;
  if (failed) return *failed;
  return success();
}

result<void> awaited_room::await_resume() noexcept {
  constexpr const char* waiting = "wait for room";
  const send_window& sends = polled().sends();
  if (!sends.is_open()) return polled().connection().refusal(waiting);
  if (wanted_ > sends.capacity())
    return error::above_limit(waiting, "requests", wanted_, sends.capacity(),
                              "the limit is the length of the send queue: build the channel with a "
                              "larger max_send_work_requests");
  if (sends.room() >= wanted_) return success();
  return limit().failure(waiting,
                         "the earlier requests in the send queue have not finished: allow more "
                         "time, or build the channel with a larger max_send_work_requests");
}

}  // namespace verbspp::detail
