// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

// The addresses through which a registration is accessed may differ from the addresses that its
// memory has in the program, and the program may have unrelated memory at the former. If a tool
// watches memory, such addresses are recorded, so that the unrelated memory is not watched by
// mistake.

/// Records that the `length` addresses starting at `start` belong to a registration, and do not
/// refer to the program's memory.
void name_otherwise(std::uint64_t start, std::uint64_t length) noexcept;
/// Removes such a record; does nothing if there is none.
void name_no_more(std::uint64_t start, std::uint64_t length) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
