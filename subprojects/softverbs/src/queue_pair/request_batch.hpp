// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace softverbs {

/// What a program builds between ibv_wr_start and ibv_wr_complete. It is posted as a whole or
/// not at all.
struct request_batch {
  struct built {
    ibv_send_wr request;
    std::size_t first_entry;
  };

  /// Held by the thread that builds.
  std::mutex building;
  /// The first mistake; what comes behind it is ignored.
  int error = 0;
  std::vector<built> requests;
  /// Of inline data, the address is a place in `inline_data`.
  std::vector<ibv_sge> entries;
  std::vector<std::byte> inline_data;
};

}  // namespace softverbs
