// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Returns the advice to give if a driver could not allocate the locked memory for a queue or a
/// queue pair; null if `errnum` is not about memory.
[[nodiscard]] const char* advice_on_queue_memory(int errnum) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
