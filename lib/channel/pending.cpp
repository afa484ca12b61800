// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/pending.hpp>

namespace verbspp::detail {

error no_request() noexcept {
  return {error_kind::invalid_input, "result of a request",
          "this handle has no request: the result was already taken, the request was detached, or "
          "the handle was moved from or default constructed"};
}

}  // namespace verbspp::detail
