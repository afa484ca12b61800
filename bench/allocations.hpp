// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The number of heap allocations of this program, including its libraries.
std::uint64_t allocations() noexcept;
