// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The advice if a driver could not allocate memory for a queue or a queue pair, which it locks;
/// null if `errnum` is not about memory.
[[nodiscard]] const char* advice_on_queue_memory(int errnum) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
