// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The test program's operator new, which the library calls as well.
namespace allocations {

/// The next `count` allocations of this thread succeed, and none after them. With a negative
/// number, all succeed.
void limit_to(int count) noexcept;
/// False if the operator belongs to a sanitizer. In this case, all allocations succeed.
bool can_be_limited() noexcept;

}  // namespace allocations
