// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// Some registrations use addresses that differ from those of the memory in the program. The program
// may have other memory at these addresses. If memory is watched, such ranges are recorded.

/// Records that the addresses from `start` on belong to a registration, not to the program's
/// memory.
void name_otherwise(std::uint64_t start, std::uint64_t length) noexcept;
/// Removes the range of a registration that has ended; does nothing if it was not recorded.
void name_no_more(std::uint64_t start, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
