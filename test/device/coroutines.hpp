// SPDX-License-Identifier: Apache-2.0
/// \file
/// Coroutines that use channels, for tests.
#pragma once

#include "../eager.hpp"
#include "channels.hpp"
#include <verbspp/coroutine.hpp>

#include <string_view>

namespace verbspp::test {

using routine = eager<transport_result<void>>;

/// Polls the channel until the coroutine has ended.
template <class Outcome>
Outcome& run(eager<Outcome>& coroutine, channel& link) {
  wait_until(
      [&] {
        link.poll();
        return coroutine.is_done();
      },
      "the coroutine");
  return coroutine.get();
}

inline routine send_text(channel& link, std::string_view text) {
  VERBSPP_CO_TRYV(co_await link.async_send({.elements = inline_payload(text)}));
  co_return success();
}
inline routine send_text(channel& link, std::string_view text, wait_limit limit) {
  VERBSPP_CO_TRYV(co_await link.async_send({.elements = inline_payload(text)}, limit));
  co_return success();
}

/// Awaits the next message of an inbox.
inline eager<result<message>> await_message(inbox& messages) {
  co_return co_await messages.async_wait();
}
inline eager<result<message>> await_message(inbox& messages, wait_limit limit) {
  co_return co_await messages.async_wait(limit);
}

}  // namespace verbspp::test
