// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Notes that this process has opened a device, or adopted an open one.
void note_device_process() noexcept;

/// True if this process has neither opened nor adopted a device, but descends, by forks, from a
/// process that had done so before the fork.
[[nodiscard]] bool is_child_of_device_process() noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
