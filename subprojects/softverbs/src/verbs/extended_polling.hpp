// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"

#include <cstdint>

namespace softverbs {

/// Sets the functions that implement ibv_start_poll, ibv_next_poll, ibv_end_poll and ibv_wc_read_*.
/// Functions for fields that were not requested stay null, so that a program that reads such a
/// field crashes.
void make_readable_one_by_one(completion_queue& queue, std::uint64_t fields) noexcept;

}  // namespace softverbs
