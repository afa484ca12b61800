// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// The elements of some registrations have addresses that differ from those of the memory in the
// program, which may have other memory there. If memory is watched, these ranges are recorded.

/// Records that the addresses from `start` on belong to a registration, not to the program's
/// memory.
void name_otherwise(std::uint64_t start, std::uint64_t length) noexcept;
/// Removes the range of a registration that has ended; does nothing if it was not recorded.
void name_no_more(std::uint64_t start, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
