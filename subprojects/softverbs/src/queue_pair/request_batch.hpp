// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/session.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs {

/// The requests that a program builds between ibv_wr_start and ibv_wr_complete. They are posted as
/// a whole, or not at all.
struct request_batch {
  struct built {
    ibv_send_wr request;
    std::size_t first_entry;
  };

  explicit request_batch(bool alone) noexcept : building(alone) {}

  /// The session of the thread that builds requests. ibv_post_send holds it, too.
  session building;
  /// The number of batches that the thread has begun within this one and has not ended yet. They
  /// fail together with this batch.
  unsigned begun_again = 0;
  /// The batch's error, or 0. After an error, further requests are ignored.
  int error = 0;
  std::vector<built> requests;
  /// The entries of all requests. In an entry of inline data, the address is an index in
  /// `inline_data`.
  std::vector<ibv_sge> entries;
  std::vector<std::byte> inline_data;
};

}  // namespace softverbs
