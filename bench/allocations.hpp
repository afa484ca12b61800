// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// How often this program, with its libraries, has asked for memory of the heap.
std::uint64_t allocations() noexcept;
