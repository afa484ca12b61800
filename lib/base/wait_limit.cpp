// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/wait_limit.hpp>

namespace verbspp {

error wait_limit::failure(const char* operation, const char* hint) const noexcept {
  return {stop_requested() ? error_kind::cancelled : error_kind::timed_out, operation, hint};
}

}  // namespace verbspp
