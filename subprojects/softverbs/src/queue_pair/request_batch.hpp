// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/session.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs {

/// What a program builds between ibv_wr_start and ibv_wr_complete. It is posted as a whole or
/// not at all.
struct request_batch {
  struct built {
    ibv_send_wr request;
    std::size_t first_entry;
  };

  explicit request_batch(bool alone) noexcept : building(alone) {}

  /// Of the thread that builds. Whoever posts to the send queue in another way is in it meanwhile.
  session building;
  /// How many times the thread that builds has begun again, which comes to nothing.
  unsigned begun_again = 0;
  /// The first mistake; what comes behind it is ignored.
  int error = 0;
  std::vector<built> requests;
  /// Of inline data, the address is a place in `inline_data`.
  std::vector<ibv_sge> entries;
  std::vector<std::byte> inline_data;
};

}  // namespace softverbs
