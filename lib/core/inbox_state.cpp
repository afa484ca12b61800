// SPDX-License-Identifier: Apache-2.0
#include "core/inbox_state.hpp"

#include "wait/waiting.hpp"

#include <optional>
#include <utility>

namespace verbspp::detail {

result<void> inbox_state::fill() noexcept {
  if (is_shared) {
    const channel_state state = core.state();
    if (state == channel_state::prepared || state == channel_state::connected) return success();
    return core.connection().refusal(taking_message);
  }
  if (!core.receives().is_open()) return core.connection().refusal(posting_receive);
  while (is_due()) {
    VERBSPP_TRY(count, core.post_receives(*this, refill));
    if (count == 0) break;
  }
  return success();
}

pool_place* inbox_state::after_filling(pool_place* taken) noexcept {
  static_cast<void>(fill());
  return taken;
}

pool_place* inbox_state::take_and_fill(bool may_poll) noexcept {
  pool_place* const taken = take(may_poll);
  return is_due() && taken != nullptr ? after_filling(taken) : taken;
}

std::optional<error> inbox_state::refusal() noexcept {
  const auto filled = fill();
  if (in_use() == 0 && !filled.has_value()) return filled.assume_error();
  return std::nullopt;
}

std::optional<result<message>> inbox_state::next_message() noexcept {
  if (pool_place* const taken = take()) return message_in(*taken);
  if (const auto refused = refusal()) return *refused;
  return std::nullopt;
}

std::optional<result<message>> inbox_state::next_arrived() noexcept {
  if (pool_place* const taken = take_arrived()) return message_in(*taken);
  if (const auto refused = refusal()) return *refused;
  return std::nullopt;
}

result<pool_place*> inbox_state::wait_longer(call_limit limit) noexcept {
  const wait_limit until = limit.begin(core.connection().settings().default_limit);
  pool_place* taken = nullptr;
  std::optional<error> refused;
  const auto is_found = [&] {
    taken = take_and_fill();
    return taken != nullptr;
  };
  const auto is_refused = [&] {
    refused = refusal();
    return refused.has_value();
  };
  const auto look = [&] {
    if (is_found()) return condition::state::met;
    // If no receives are due, there is no error to find: errors are found when receives are posted,
    // and if the channel breaks, its receives are flushed, so that new ones become due.
    if (!is_due() && !is_shared) [[likely]]
      return condition::state::unmet;
    if ((!is_shared && is_found()) || is_refused()) return condition::state::met;
    // Returning a place to the pool wakes no thread, so the sleep has to be short.
    return is_due() || is_short ? condition::state::unmet_so_far : condition::state::unmet;
  };
  VERBSPP_TRY(end, core.wait_for_message(look, until));
  const bool is_over = taken != nullptr || refused.has_value();
  if (!is_over && end == wait_end::completions && !is_found()) static_cast<void>(is_refused());
  if (taken != nullptr) return taken;
  if (refused) return *refused;
  return until.failure(taking_message, why_none());
}

const char* inbox_state::why_none() const noexcept {
  if (in_use() != 0 || is_shared)
    return "no message has arrived: check that the peer sends one, and that the message pool has "
           "free places, or allow more time";
  return "the inbox has no receive posted, because the message pool has no free place, or the "
         "channel's receive queue has no room: drop messages, create the pool with more places, "
         "or build the channel with a larger max_receive_work_requests";
}

}  // namespace verbspp::detail
