// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "completion/completion_queue.hpp"

#include <cstdint>

namespace softverbs {

/// Fills in what ibv_start_poll, ibv_next_poll, ibv_end_poll and ibv_wc_read_* call; of the
/// latter only those for the fields asked for, so that reading another one shows.
void make_readable_one_by_one(completion_queue& queue, std::uint64_t fields) noexcept;

}  // namespace softverbs
