// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The test program's operator new, which the library has, too.
namespace allocations {

/// That many allocations of this thread succeed from here on, and none after them; with a negative
/// number, all do.
void limit_to(int count) noexcept;
/// False where that operator is a sanitizer's; then all succeed.
bool can_be_limited() noexcept;

}  // namespace allocations
