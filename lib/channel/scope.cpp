// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/scope.hpp>

namespace verbspp {

namespace detail {

namespace {

error renewed() noexcept {
  return {error_kind::not_connected, "scope of a channel",
          "requests of the scope or stream failed, and the channel has been renewed since, so the "
          "cause is no longer known: renew a channel only after its scopes and streams have ended"};
}

}  // namespace

scope_error scope_base::describe(const std::optional<error>& ended,
                                 std::uint32_t left) const noexcept {
  scope_error all;
  // A scope of an empty channel was never opened.
  if (state_.serial == 0)
    all.add_work(channel_core::refusal_of_empty("scope of a channel"), 0, 0);
  else if (ended)
    all.add_work(*ended, state_.failed, state_.flushed);
  else if (state_.failed + state_.flushed != 0)
    all.add_work(core_.connection().failure() ? core_.connection().failure()->root() : renewed(),
                 state_.failed, state_.flushed);
  all.add_left(left);
  return all;
}

}  // namespace detail

result<void> channel_scope::make_room_for_batch(std::uint32_t wanted) noexcept {
  if (wanted > core_.sends().capacity())
    return error::above_limit("ibv_post_send (batch)", "requests of the batch", wanted,
                              core_.sends().capacity(),
                              "the limit is the length of the send queue: post a smaller batch, or "
                              "build the channel with a larger max_send_work_requests");
  return core_.wait_for_send_room(wanted, state_.limit);
}

}  // namespace verbspp
