// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/memory/protection_domain.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Checks that a protection domain can be used.
/// \errors `invalid_input` if it was moved from
[[nodiscard]] inline result<void> check_usable(const char* operation,
                                               const protection_domain& parent) noexcept {
  if (parent.native_handle() == nullptr)
    return error(error_kind::invalid_input, operation, "this protection domain was moved from");
  return success();
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
