// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The number of heap allocations that this program and its libraries have made so far.
std::uint64_t allocations() noexcept;
