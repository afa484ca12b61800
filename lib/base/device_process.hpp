// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Notes that this process has opened a device, or adopted an open one.
void note_device_process() noexcept;

/// True if this process was forked from one that had opened or adopted a device, and has not done
/// so itself.
[[nodiscard]] bool is_child_of_device_process() noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
