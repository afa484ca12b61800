// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/pending.hpp>

namespace verbspp::detail {

error pending_request::no_request() noexcept {
  return {error_kind::invalid_input, "result of a request",
          "this handle has none: its result was taken already, or it was moved from"};
}

}  // namespace verbspp::detail
