// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// Elements of some registrations have addresses that are not where the program finds the memory,
// and may be where it has something else. Where memory is watched, these ranges are remembered.

/// Addresses from `start` on are those of a registration, and not the program's.
void name_otherwise(std::uint64_t start, std::uint64_t length) noexcept;
/// That registration is gone; nothing happens if it was not told of.
void name_no_more(std::uint64_t start, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
