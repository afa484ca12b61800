// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/pending.hpp>

namespace verbspp::detail {

error pending_request::no_request() noexcept {
  return {error_kind::invalid_input, "result of a request",
          "this handle has none: its result was taken already, or it was moved from"};
}

transport_result<completed_work> pending_request::take_after_wait(
    channel_core& core, request one, const wait_limit* limit) noexcept {
  const auto ended = core.wait_for(one, limit);
  auto result = core.take_result(one);
  if (ended && !result.has_value()) return *ended;
  return result;
}

}  // namespace verbspp::detail
