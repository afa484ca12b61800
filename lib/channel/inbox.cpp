// SPDX-License-Identifier: Apache-2.0
#include "core/inbox_state.hpp"
#include "wait/waiting.hpp"
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp {

namespace {

error moved_from() noexcept {
  return {error_kind::invalid_input, detail::taking_message, "this inbox was moved from"};
}

}  // namespace

inbox::inbox(detail::owned<detail::inbox_state>&& state) noexcept : state_(std::move(state)) {
  // The inbox counts as a handle, since it may outlive the channel.
  state_->core.open_inbox(*state_.get());
}

inbox::inbox(inbox&& other) noexcept = default;

inbox& inbox::operator=(inbox&& other) noexcept {
  if (this == &other) return *this;
  leave();
  state_ = std::move(other.state_);
  return *this;
}

inbox::~inbox() { leave(); }

void inbox::leave() noexcept {
  if (!state_) return;
  state_->core.end_subject(state_.get());
  while (detail::pool_place* const taken = state_->take_listed()) taken->give_back();
  detail::channel_core& core = state_->core;
  core.drop_inbox(std::move(state_));
}

result<inbox> inbox::open(channel& of, const message_pool& pool, inbox_options options) noexcept {
  return open(of.core(), pool, options);
}

result<inbox> inbox::open(prepared_channel& of, const message_pool& pool,
                          inbox_options options) noexcept {
  return open(of.core(), pool, options);
}

result<inbox> inbox::open(detail::channel_core& core, const message_pool& pool,
                          const inbox_options& options) noexcept {
  if (core.state() == channel_state::empty)
    return detail::channel_core::refusal_of_empty(detail::opening_inbox);
  if (pool.places() == nullptr)
    return error(error_kind::invalid_input, detail::opening_inbox, "this pool was moved from");
  if (pool.places()->domain() != core.connection().domain())
    return error(error_kind::invalid_input, detail::opening_inbox,
                 "the pool's memory is registered in another protection domain: create the pool "
                 "and the channel in the same one");
  if (core.has_shared_messages()) return open_shared(core, pool);
  if (!core.receives().is_open()) return core.connection().refusal(detail::posting_receive);
  const std::uint32_t capacity = core.receives().capacity();
  if (options.depth > capacity)
    return error::above_limit(detail::opening_inbox, "depth", options.depth, capacity,
                              "build the channel with a larger max_receive_work_requests");
  const std::uint32_t depth = options.depth != 0 ? options.depth : capacity;
  const std::uint32_t refill = detail::refill_for(depth, options.refill);
  detail::owned<detail::inbox_state> state(
      new (std::nothrow) detail::inbox_state{.core = core,
                                             .pool = pool,
                                             .depth = depth,
                                             .refill = refill,
                                             .due_below = static_cast<int>(depth - refill + 1)});
  if (!state) return error::from_errno(ENOMEM, detail::opening_inbox);
  inbox made(std::move(state));
  VERBSPP_TRYV(made.state_->fill());
  return made;
}

result<inbox> inbox::open_shared(detail::channel_core& core, const message_pool& pool) noexcept {
  detail::owned<detail::inbox_state> state(new (std::nothrow) detail::inbox_state{
      .core = core, .pool = pool, .depth = 0, .refill = 0, .due_below = 0});
  if (!state) return error::from_errno(ENOMEM, detail::opening_inbox);
  VERBSPP_TRYV(core.open_shared_inbox(*state.get()));
  return inbox(std::move(state));
}

int inbox::file_descriptor() const noexcept { return state_ ? state_->core.loop_descriptor() : -1; }

result<bool> inbox::request_notification() noexcept {
  if (!state_) return moved_from();
  return state_->core.ask_to_be_woken();
}

wait_limit::time_point inbox::deadline() const noexcept {
  if (!state_) return (wait_limit::time_point::max)();
  detail::channel_core& core = state_->core;
  const auto of_channel = core.deadline();
  if (!core.receives().is_open() || !state_->is_due()) return of_channel;
  return std::min(of_channel, std::chrono::steady_clock::now() + detail::longest_nap);
}

std::uint32_t inbox::posted() const noexcept { return state_ ? state_->posted() : 0; }

std::ostream& operator<<(std::ostream& out, const inbox& printed) {
  if (!printed.state_) return out << "inbox that was moved from";
  const detail::inbox_state& mine = *printed.state_.get();
  out << "inbox, ";
  if (mine.is_shared)
    out << "the hub posts its receives";
  else
    out << "receives posted: " << std::to_string(mine.posted()) << " of "
        << std::to_string(mine.depth);
  return out << ", messages that have arrived: " << std::to_string(mine.messages);
}

std::optional<result<message>> inbox::poll() noexcept {
  if (!state_) return moved_from();
  if (detail::pool_place* const taken = state_->take_listed()) return state_->message_in(*taken);
  return state_->next_message();
}

std::optional<result<message>> inbox::next_arrived() noexcept {
  if (!state_) return moved_from();
  return state_->next_arrived();
}

detail::pool_place* inbox::take() noexcept {
  if (!state_) [[unlikely]]
    return nullptr;
  detail::inbox_state& mine = *state_.get();
  return mine.core.take_message(mine);
}

result<detail::pool_place*> inbox::wait_longer(call_limit limit) noexcept {
  if (!state_) return moved_from();
  return state_->wait_longer(limit);
}

}  // namespace verbspp
