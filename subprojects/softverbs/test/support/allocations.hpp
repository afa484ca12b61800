// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Controls the operator new of the test program, which the library calls as well.
namespace allocations {

/// From now on, only the next `count` allocations on this thread succeed. If `count` is negative,
/// all of them succeed.
void limit_to(int count) noexcept;
/// Returns the number of allocations that have not been freed yet, on all threads. If a sanitizer
/// defines the operator, returns 0.
long not_freed() noexcept;
/// Returns false if a sanitizer defines the operator, in which case all allocations succeed.
bool can_be_limited() noexcept;

}  // namespace allocations
