// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine/receive_hash.hpp"

#include <infiniband/verbs.h>

#include <vector>

namespace softverbs {

class receive_work_queue;
struct packet;

/// A table of queues over which frames are spread. The number of entries is a power of two, and a
/// queue may occur in several entries.
struct indirection_table final : ibv_rwq_ind_table {
  indirection_table(ibv_context& verbs, std::vector<receive_work_queue*> all) noexcept;

  const std::vector<receive_work_queue*> queues;
  /// The number of queue pairs that use the table. Protected by the engine's lock.
  unsigned queue_pairs = 0;
};

/// The configuration of a queue pair that spreads frames over work queues instead of receiving them
/// itself.
struct frame_spreading {
  /// Passes a frame to the queue that its hash selects. Requires the engine's lock.
  void spread(const packet& frame) const;

  indirection_table& table;
  receive_hash hash;
};

}  // namespace softverbs
