// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/pending.hpp>

#include <utility>

namespace verbspp::detail {

error pending_request::no_request() noexcept {
  return {error_kind::invalid_input, "result of a request",
          "this handle has no request: the result was already taken, the request was detached, or "
          "the handle was moved from or default constructed"};
}

void pending_request::leave_with(kept_memory memory) noexcept {
  channel_core& core = *std::exchange(core_, nullptr);
  core.keep(request_, memory);
  core.drop(request_);
}

}  // namespace verbspp::detail
