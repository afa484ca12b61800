// SPDX-License-Identifier: Apache-2.0
/// \file
/// Calls that are refused with an error and have no effect.
#include "operations.hpp"

#include <chrono>
#include <stop_token>

namespace verbspp::soak {

/// Makes a call whose limit has already expired or whose stop has already been requested. Checks
/// that the call fails and that the channel is still connected.
void end::use_passed_limit() {
  doing_ = "an expired limit";
  std::stop_source source;
  source.request_stop();
  const bool is_stop = once_in(2);
  const wait_limit limit = is_stop ? wait_limit(source.get_token()) : wait_limit(clock::now() - 1s);
  channel_.poll();
  if (!channel_.is_connected()) return;
  work job;
  if (!choose(job, true)) return;
  const auto done =
      with_operation(job, [&](const auto& what) { return call(channel_, what, limit); });
  undo(job);
  claim(!done.has_value(), "a call with an expired limit succeeded");
  claim(error(done.error()).kind() == (is_stop ? error_kind::cancelled : error_kind::timed_out),
        "an expired limit: " + done.error().message());
  claim(channel_.is_connected(), "an expired limit has broken the channel");
}

/// Makes mistakes, and checks that each is refused with an error and has no effect.
void end::misuse() {
  doing_ = "misuse";
  channel other(std::move(channel_));
  claim(channel_.state() == channel_state::empty, "a channel that was moved from is not empty");
  const auto refused = channel_.post_send(send_operation{});
  claim(!refused.has_value() && refused.error().kind() == error_kind::not_connected,
        "an empty channel does not refuse requests");
  claim(channel_.outstanding() == 0, "an empty channel has outstanding requests");
  channel_ = std::move(other);
  if (channel_.is_connected()) {
    const auto again = channel_.handshake(channel_.endpoint());
    claim(!again.has_value() && again.error().kind() == error_kind::busy,
          "a connected channel does not refuse a handshake");
  }
}

}  // namespace verbspp::soak
