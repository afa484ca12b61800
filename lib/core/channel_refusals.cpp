// SPDX-License-Identifier: Apache-2.0
#include "wait/waiting.hpp"
#include <verbspp/core/detail/channel_core.hpp>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <span>

namespace verbspp::detail {

namespace {

constexpr std::uint64_t default_limit_flag = std::uint64_t{1} << 32;

/// Names the peer's queue pair, whose number is among the facts in a wait's error. There are three
/// facts: the number of outstanding requests in the send queue, the number of outstanding receives
/// (both are 0 after a hang-up), and the number of the peer's queue pair, with `default_limit_flag`
/// if the channel's default limit applied.
std::array<char, 40> peer_of(const error_access::words& facts) noexcept {
  std::array<char, 40> text{};
  if (const auto number = static_cast<std::uint32_t>(facts[2]); number != 0)
    std::snprintf(text.data(), text.size(), " (peer: queue pair 0x%06" PRIx32 ")", number);
  return text;
}

std::size_t ended_message(const error& e, std::span<char> buffer) noexcept {
  const auto facts = error_access::facts(e);
  const bool was_stopped = e == error_kind::cancelled;
  const bool is_default = (facts[2] & default_limit_flag) != 0;
  const char* advice = is_default
                           ? ", and allow more time if the limit was too short; the wait had no "
                             "limit of its own, so the channel's default_limit applied"
                           : ", and allow more time if the limit was too short";
  if (was_stopped) advice = "";
  const bool waits_for_messages = facts[0] == 0 && facts[1] != 0 && !was_stopped;
  const int length = std::snprintf(
      buffer.data(), buffer.size(),
      "%s: %s%s, with %" PRIu64 " request%s of the send queue and %" PRIu64
      " receive%s outstanding%s; they were aborted, and the channel is broken: renew it%s",
      e.operation(), was_stopped ? "a stop was requested" : "the timeout expired",
      peer_of(facts).data(), facts[0], facts[0] == 1 ? "" : "s", facts[1], facts[1] == 1 ? "" : "s",
      waits_for_messages ? ", for which no message arrived" : "", advice);
  return length < 0 ? 0 : static_cast<std::size_t>(length);
}

constexpr error_source ended_by_hang_up{
    [](const error& e, std::span<char> buffer) noexcept {
      const int length =
          std::snprintf(buffer.data(), buffer.size(), "%s: %s%s; %s", e.operation(),
                        to_string(e.kind()), peer_of(error_access::facts(e)).data(), e.hint());
      return length < 0 ? std::size_t{0} : static_cast<std::size_t>(length);
    },
    [](const error& /*e*/) noexcept { return ECANCELED; }};

constexpr error_source ended_by_limit{
    [](const error& e, std::span<char> buffer) noexcept { return ended_message(e, buffer); },
    [](const error& e) noexcept { return e == error_kind::cancelled ? ECANCELED : ETIMEDOUT; }};

error hub_posts_receives(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "the hub of this channel posts all receives, and messages arrive in the hub's pool: take "
          "them from the hub, or open an inbox"};
}

}  // namespace

error channel_connection::refusal(const char* operation) const noexcept {
  switch (state_) {
    case channel_state::broken:
      return error_access::of_broken_connection(failure_->root());
    case channel_state::closed:
      return {
          error_kind::not_connected, operation,
          "the channel was closed or destroyed: renew it, or build another one, and connect again"};
    case channel_state::connected:
      return hub_posts_receives(operation);
    case channel_state::prepared:
      if (operation == posting_receive) return hub_posts_receives(operation);
      return {error_kind::not_connected, operation,
              "the channel is not connected yet: exchange endpoints with the peer and call "
              "handshake, or connect it through a connection manager"};
    case channel_state::empty:
      break;
  }
  return channel_core::refusal_of_empty(operation);
}

error channel_core::refusal_of_empty(const char* operation) noexcept {
  return {error_kind::not_connected, operation,
          "this channel is empty: it was moved from, or never built, or stands for a peer that a "
          "group does not have or has not connected"};
}

error channel_core::posted_within_batch() noexcept {
  return {error_kind::busy, "ibv_post_send (batch)",
          "something else was posted to the channel while the batch was being filled: post it "
          "before or after the batch"};
}

error channel_core::not_extended(const char* operation) noexcept {
  return {error_kind::not_supported, operation,
          "this operation needs the extended posting interface: build the channel with "
          "extended_posting()"};
}

error channel_core::ended_before(const wait_limit& limit) noexcept {
  if (limit.stop_requested())
    return {error_kind::cancelled, waiting_on_channel,
            "a stop was requested before the operation began"};
  return limit.failure(waiting_on_channel,
                       "the timeout expired before the operation could begin, so nothing was "
                       "posted: allow more time");
}

error channel_core::ended_by(const wait_limit& limit, bool is_default) const noexcept {
  const error_kind kind = limit.failure(waiting_on_channel).kind();
  const std::uint64_t flag = is_default ? default_limit_flag : 0;
  return error_access::made(
      ended_by_limit, waiting_on_channel, nullptr,
      {sends_.outstanding(), receives_.outstanding(), connection_.peer_number() | flag}, kind);
}

error channel_core::ended_by_descriptor() const noexcept {
  return error_access::made(
      ended_by_hang_up, waiting_on_channel,
      "the descriptor that the channel watches was closed at its other end, has failed, "
      "or is readable: usually the peer has exited, or has closed its channel",
      {0, 0, connection_.peer_number()}, error_kind::cancelled);
}

std::optional<error> channel_core::ended_by_drop(const error& ended) noexcept {
  if (!error_access::is_from(ended_by_limit, ended)) return std::nullopt;
  return error_access::made(ended_by_limit, "drop the handle of a request in flight", nullptr,
                            error_access::facts(ended), ended.kind());
}

error channel_core::uncarried(const char* operation, bool is_for_its_fence) const noexcept {
  if (!sends_.is_open()) return connection_.refusal(operation);
  if (is_for_its_fence) return no_fence(operation);
  return {error_kind::not_supported, operation,
          "this operation needs RC, but the channel uses UC: build the channel with transport::rc"};
}

}  // namespace verbspp::detail
