// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace softverbs {

/// Processes whose packets differ, or whose devices do, don't meet: what the names of all sockets
/// of this one's kind begin with.
const char* own_kind() noexcept;

/// To be called when nobody of this kind has the slot: says on stderr, once, if somebody else has.
void tell_of_stranger(std::uint32_t slot) noexcept;

}  // namespace softverbs
