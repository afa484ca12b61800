// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ways in which a channel waits: for room, requests, scopes, messages and news.
#include "core/inbox_state.hpp"
#include "wait/waiting.hpp"
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/work/operations.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace verbspp::detail {

error channel_core::reason_of(wait_end end, const wait_limit& until, bool is_default) noexcept {
  if (end == wait_end::file_descriptor) return ended_by_descriptor();
  if (end == wait_end::limit) return ended_by(until, is_default);
  return connection_.heard();
}

/// Breaks the connection because of the event that ended a wait. \returns the cause
error channel_core::give_up(wait_end end, const error& why) noexcept {
  break_off(why, end);
  return why;
}

template <class Done>
std::optional<error> channel_core::wait_until(Done done, call_limit limit) noexcept {
  collect();
  if (done()) {
    collect_broken();
    return std::nullopt;
  }
  const wait_limit until = limit.begin(connection_.settings().default_limit);
  const auto look = [&] {
    while (collect() && !done()) {
    }
    return done() || connection_.failure() ? condition::state::met : condition::state::unmet;
  };
  const auto ended = connection_.wait(look, until);
  if (!ended.has_value()) {
    break_off(ended.assume_error());
    return ended.assume_error();
  }
  const wait_end end = ended.assume_value();
  if (end != wait_end::completions)
    return give_up(end, reason_of(end, until, limit.is_of_channel()));
  if (connection_.queue_is_lost()) return connection_.failure()->root();
  if (const auto why = connection_.reason_of_flush()) return give_up(wait_end::async_event, *why);
  collect_broken();
  return std::nullopt;
}

std::optional<error> channel_core::wait_for(request one, call_limit limit) noexcept {
  return wait_until([&] { return is_done(one); }, limit);
}

std::optional<error> channel_core::wait_for_all(const scope_state& scope) noexcept {
  if (has_finished(scope)) return std::nullopt;
  mark_end(scope);
  if (has_finished(scope)) return std::nullopt;
  return wait_until([&] { return has_finished(scope); }, scope.limit);
}

result<void> channel_core::wait_for_send_room(std::uint32_t wanted, call_limit limit) noexcept {
  if (!sends_.is_open()) return connection_.refusal(waiting_on_channel);
  const auto ended = wait_until([&] { return sends_.room() >= wanted; }, limit);
  if (ended) return *ended;
  if (!sends_.is_open()) return connection_.refusal(waiting_on_channel);
  return success();
}

result<void> channel_core::make_send_room(const char* operation, bool waits,
                                          call_limit limit) noexcept {
  if (sends_.is_open() && sends_.capacity() == 0)
    return error(error_kind::invalid_input, operation,
                 "the channel's send queue has length 0: build the channel with a larger "
                 "max_send_work_requests");
  // There is no wait on an empty channel, so that the error names the operation rather than the
  // wait.
  if (waits && state() != channel_state::empty) return wait_for_send_room(1, limit);
  if (sends_.is_open()) collect();
  if (sends_.has_room()) return success();
  if (!sends_.is_open()) return connection_.refusal(operation);
  return error(error_kind::would_block, operation,
               "the send queue is full: wait for earlier work, or build the channel with a larger "
               "max_send_work_requests");
}

result<void> channel_core::make_receive_room(bool waits, call_limit limit) noexcept {
  const auto is_refused = [this] { return !receives_.is_open(); };
  if (!is_refused() && receives_.capacity() == 0)
    return error(error_kind::invalid_input, posting_receive,
                 "the channel's receive queue has length 0: build the channel with a larger "
                 "max_receive_work_requests");
  if (waits && !is_refused() && receives_.room() == 0)
    if (const auto ended = wait_until([&] { return receives_.room() != 0; }, limit)) return *ended;
  if (!is_refused() && !receives_.has_room()) collect();
  if (is_refused()) return connection_.refusal(posting_receive);
  if (receives_.has_room()) return success();
  if (receives_.room() == 0)
    return error(error_kind::would_block, posting_receive,
                 inboxes_.count() != 0 && inboxes_.posted() != 0
                     ? "the receive queue is full, and an inbox has posted receives to it: take "
                       "messages from the inbox, or open it with a smaller depth"
                     : "the receive queue is full: wait for earlier receives, or build the channel "
                       "with a larger max_receive_work_requests");
  return error(error_kind::resource_exhausted, posting_receive,
               "the results of too many finished receives have not been taken: poll their handles, "
               "or drop them");
}

result<wait_end> channel_core::wait_for_message(const looking& look,
                                                const wait_limit& limit) noexcept {
  VERBSPP_TRY(end, connection_.wait(look, limit));
  if (end == wait_end::completions || end == wait_end::limit) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

bool channel_core::has_news(std::uint64_t known) const noexcept {
  const std::uint32_t held =
      outstanding() - inboxes_.posted() - sends_.unheld() - receives_.unheld();
  const std::uint32_t without_result = inboxes_.count() + scopes_.count() + held;
  return connection_.failure() || handles_ > without_result || inboxes_.has_messages() ||
         completed() != known || polls_.has_handed() || polls_.has_stop();
}

result<wait_end> channel_core::wait_for_news(const wait_limit& limit,
                                             int file_descriptor) noexcept {
  if (state() == channel_state::empty) return refusal_of_empty(waiting_on_channel);
  const std::uint64_t known_before = known();
  int signal = -1;
  if (!polls_.is_empty()) {
    VERBSPP_TRY(stops, connection_.ready_signal());
    signal = stops;
  }
  const auto look = [&] {
    while (collect()) {
    }
    return has_news(known_before) ? condition::state::met : condition::state::unmet;
  };
  VERBSPP_TRY(end, connection_.wait(look, limit, {.number = file_descriptor}, signal));
  known_ = completed();
  if (end == wait_end::completions || end == wait_end::limit) return end;
  if (end == wait_end::file_descriptor && !has_ended(connection_.watched())) return end;
  static_cast<void>(give_up(end, reason_of(end, limit)));
  return wait_end::completions;
}

result<bool> channel_core::ask_to_be_woken() noexcept {
  if (state() == channel_state::empty) return refusal_of_empty(waiting_on_channel);
  const std::uint64_t known_before = known();
  polls_.need_care();  // the channel will have an event loop
  VERBSPP_TRYV(connection_.ask_to_be_woken());
  while (collect()) {
  }
  notice_end();
  const bool is_news = has_news(known_before);
  known_ = completed();
  return is_news;
}

wait_limit::time_point channel_core::deadline() const noexcept {
  if (polls_.has_handed()) return std::chrono::steady_clock::now();
  if (connection_.failure()) return polls_.alarm();
  return std::min(polls_.alarm(), connection_.seen_end_at());
}

void channel_core::open_stream(scope_state& stream) noexcept {
  stream.is_stream = true;
  for (const scope_state* outer = stream.outer; outer != nullptr; outer = outer->outer)
    if (outer->is_stream) return;
  sends_.note_signaled();
}

void channel_core::mark_end(const scope_state& stream) noexcept {
  if (!has_open_end(stream)) return;
  if (!sends_.has_room() && !wait_for_send_room(1, stream.limit).has_value()) return;
  if (has_finished(stream)) return;
  // A write or read of 0 bytes needs none of the peer's memory, only the right of its queue pair
  // that the stream's own writes or reads need. If it cannot be posted, no completion will show
  // that the stream's requests have finished. In that case, the connection is broken, which ends
  // the requests.
  constexpr remote_key none(std::uint32_t{0});
  request marker;
  const result<void> marked =
      stream.has_reads
          ? post(read_operation{.remote = remote_memory<access::remote_read>(0, 0, none)}, marker)
          : post(write_operation{.remote = remote_memory<access::remote_write>(0, 0, none)},
                 marker);
  if (!marked.has_value()) return break_off(marked.assume_error());
  sends_.note_unheld(marker.number);
  sends_.note_signaled();
}

}  // namespace verbspp::detail
