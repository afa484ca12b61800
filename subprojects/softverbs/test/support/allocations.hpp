// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Controls the test program's operator new, which the library calls as well.
namespace allocations {

/// Only the next `count` allocations of this thread succeed. If the number is negative, all
/// succeed.
void limit_to(int count) noexcept;
/// False if a sanitizer defines the operator; then all allocations succeed.
bool can_be_limited() noexcept;

}  // namespace allocations
