// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace softverbs {

/// Returns the prefix of the slot names of all processes that can connect to this one. Processes
/// with different packet formats, or with different values of `configuration::fingerprint`, have
/// different prefixes.
const char* own_kind() noexcept;

/// Called if no process with this process's prefix seems to have the slot. If a process with a
/// different prefix has the slot, reports this on stderr, once. Searches at most once a second.
void tell_of_stranger(std::uint32_t slot) noexcept;

}  // namespace softverbs
