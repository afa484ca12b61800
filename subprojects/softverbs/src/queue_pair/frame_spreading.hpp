// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine/receive_hash.hpp"

#include <infiniband/verbs.h>

#include <vector>

namespace softverbs {

class receive_work_queue;
struct packet;

/// Queues to spread frames over. Their number is a power of two, and one may be there more than
/// once.
struct indirection_table final : ibv_rwq_ind_table {
  indirection_table(ibv_context& verbs, std::vector<receive_work_queue*> all) noexcept;

  const std::vector<receive_work_queue*> queues;
  /// Those that spread by it; the engine's lock protects it.
  unsigned queue_pairs = 0;
};

/// What a queue pair has that receives nothing itself.
struct frame_spreading {
  /// Under the engine's lock.
  void spread(const packet& frame) const;

  indirection_table& table;
  receive_hash hash;
};

}  // namespace softverbs
