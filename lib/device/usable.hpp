// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/device/context.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] inline error context_moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this context was moved from"};
}

/// Checks a context before a call of libibverbs that uses it.
/// \errors `invalid_input` if the context was moved from
[[nodiscard]] inline result<void> check_usable(const char* operation,
                                               const context& parent) noexcept {
  if (parent.native_handle() == nullptr) return context_moved_from(operation);
  return success();
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
