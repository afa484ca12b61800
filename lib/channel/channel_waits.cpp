// SPDX-License-Identifier: Apache-2.0
#include "channel/waiting.hpp"
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/marker_operation.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <optional>

namespace verbspp::detail {

namespace {

error ended_by_descriptor() noexcept {
  return {error_kind::cancelled, waiting_on_channel,
          "the descriptor that the channel watches was closed at its other end, or is readable: "
          "usually the peer is gone"};
}

}  // namespace

error channel_connection::reason_of(wait_end end, const wait_limit& until) noexcept {
  if (end == wait_end::file_descriptor) return ended_by_descriptor();
  if (end == wait_end::limit) return ended_by(until);
  // A port may have come back meanwhile.
  return failure_told_to(listener_).value_or(
      error(error_kind::driver, waiting_on_channel, "a port was down for a moment"));
}

/// What ended a wait ends the connection. \returns why
error channel_connection::give_up(wait_end end, const error& why) noexcept {
  break_off(why);
  failure_->note_end(end);
  return why;
}

/// The device may know why everything was flushed.
std::optional<error> channel_connection::reason_of_flush() noexcept {
  if (!failure_ || root_is_certain_ || !queue_pair_) return std::nullopt;
  return failure_told_to(listener_, time_of_events);
}

result<wait_end> channel_connection::wait_as_told(const looking& look, const wait_limit& until,
                                                  const watched_descriptor& another) noexcept {
  return wait_looking({.mode = settings_.waiting,
                       .queue = queue(),
                       .listener = listener_,
                       .until = until,
                       .descriptor = watched_,
                       .another = another},
                      look);
}

template <class Done>
std::optional<error> channel_connection::wait_until(Done done, const wait_limit* limit) noexcept {
  collect();
  if (done()) {
    collect_broken();
    return std::nullopt;
  }
  const wait_limit until = limit != nullptr ? *limit : wait_limit(settings_.default_limit);
  const auto look = [&] {
    while (collect() && !done()) {
    }
    return done() || failure_ ? sight::enough : sight::nothing;
  };
  const auto ended = wait_as_told(look, until);
  if (!ended.has_value()) {
    break_off(ended.assume_error());
    return ended.assume_error();
  }
  const wait_end end = ended.assume_value();
  if (end != wait_end::completions) return give_up(end, reason_of(end, until));
  if (queue_is_lost_) return failure_->root();
  if (const auto why = reason_of_flush()) return give_up(wait_end::async_event, *why);
  collect_broken();
  return std::nullopt;
}

result<wait_end> channel_connection::wait_for_message(const looking& look,
                                                      const wait_limit& limit) noexcept {
  VERBSPP_TRY(end, wait_as_told(look, limit));
  if (end == wait_end::completions || end == wait_end::limit) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

result<wait_end> channel_connection::wait_for_news(const wait_limit& limit,
                                                   int file_descriptor) noexcept {
  if (state_ == channel_state::empty) return refusal_of_empty(waiting_on_channel);
  const std::uint64_t sends_before = completed_;
  const std::uint32_t receives_before = receives_outstanding();
  const auto look = [&] {
    collect();
    const bool has_news =
        failure_ || completed_ != sends_before || receives_outstanding() != receives_before;
    return has_news ? sight::enough : sight::nothing;
  };
  VERBSPP_TRY(end, wait_as_told(look, limit, {.number = file_descriptor}));
  if (end == wait_end::completions || end == wait_end::limit) return end;
  if (end == wait_end::file_descriptor && !has_ended(watched_)) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

result<bool> channel_connection::ask_to_be_woken() noexcept {
  if (state_ == channel_state::empty) return refusal_of_empty(waiting_on_channel);
  if (!settings_.waiting.sleeps())
    return error(error_kind::not_supported, waiting_on_channel,
                 "this channel only spins, and has no descriptor: build it with "
                 "waiting(wait_mode::sleep())");
  const std::uint64_t sends_before = completed_;
  const std::uint32_t receives_before = receives_outstanding();
  completion_queue_state& state = *completion_queue_access::state_of(queue());
  VERBSPP_TRYV(state.ask_to_be_woken(notify_for::every_completion));
  collect();
  if (listener_.has_heard() && !failure_)
    static_cast<void>(
        give_up(wait_end::async_event, reason_of(wait_end::async_event, wait_limit::forever())));
  return failure_ || completed_ != sends_before || receives_outstanding() != receives_before;
}

void channel_connection::stay_awake() noexcept {
  if (settings_.waiting.sleeps()) completion_queue_access::state_of(queue())->stay_awake();
}

std::optional<error> channel_connection::wait_for(request one, const wait_limit* limit) noexcept {
  return wait_until([&] { return is_done(one); }, limit);
}

transport_result<completed_work> channel_connection::take_with_care(
    request one, const wait_limit* limit) noexcept {
  if (is_done(one)) collect_broken();
  const bool was_given_up = !is_done(one) && wait_for(one, limit).has_value();
  if (was_given_up) return take_with_attention(one, true);
  return take_result(one);
}

std::optional<error> channel_core::wait_for_all(const scope_state& scope) noexcept {
  if (has_finished(scope)) return std::nullopt;
  if (scope.is_stream) mark_end(scope);
  if (has_finished(scope)) return std::nullopt;
  return wait_until([&] { return has_finished(scope); }, scope.limit);
}

result<void> channel_connection::wait_for_send_room(std::uint32_t wanted,
                                                    const wait_limit* limit) noexcept {
  if (!may_send_) return refusal(waiting_on_channel);
  const auto ended = wait_until([&] { return send_room() >= wanted; }, limit);
  if (ended) return *ended;
  if (!may_send_) return refusal(waiting_on_channel);
  return success();
}

result<void> channel_connection::wait_for_receive_room(const wait_limit* limit) noexcept {
  if (!may_receive_) return refusal(waiting_on_channel);
  const auto ended = wait_until([&] { return receive_room_ != 0; }, limit);
  if (ended) return *ended;
  if (!may_receive_) return refusal(waiting_on_channel);
  return success();
}

void channel_core::mark_end(const scope_state& stream) noexcept {
  if (signaled_end_ >= stream.sends_end || !may_send_) return;
  if (send_room() == 0 && !wait_for_send_room(1, stream.limit).has_value()) return;
  if (has_finished(stream)) return;
  // Where this fails, nothing will tell that those before it have finished, but the end of the
  // connection.
  request marker;
  if (const auto marked = post(marker_operation(), marker, nullptr); !marked.has_value())
    return break_off(marked.assume_error());
  note_signaled();
}

}  // namespace verbspp::detail
