// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/pending.hpp>

namespace verbspp::detail {

error pending_request::no_request() noexcept {
  return {error_kind::invalid_input, "result of a request",
          "this handle has none: its result was taken already, or it was moved from"};
}

transport_result<completed_work> pending_request::take_after_wait(
    const wait_limit* limit) noexcept {
  work_slot& slot = *std::exchange(slot_, nullptr);
  const auto ended = core_->wait_for(slot, limit);
  auto result = core_->take_result(slot);
  if (ended && !result.has_value()) return *ended;
  return result;
}

}  // namespace verbspp::detail
