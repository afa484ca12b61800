// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

inline constexpr const char* sessions_dont_nest =
    "this thread is already polling an extended completion queue: polling sessions cannot be "
    "nested, so do not poll in the function that poll_each or wait_each calls";

/// The error for a failed poll or polling session. softverbs returns EBUSY if a queue is polled
/// within its own session; other drivers may deadlock.
[[nodiscard]] error poll_failure(int errnum, const char* operation) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
