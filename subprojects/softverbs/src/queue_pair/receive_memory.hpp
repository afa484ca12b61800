// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/region_table.hpp"
#include "queue_pair/receive_queue.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// What a receive names, of a domain, as it is now.
class receive_memory {
 public:
  receive_memory(const region_table& regions, const ibv_pd* domain,
                 const receive_queue::receive& work) noexcept
      : regions_(regions), domain_(domain), work_(work) {}

  /// Writes the bytes from an offset on, piece by piece. Checks only the bytes that it writes.
  /// \returns false at the first piece whose bytes may not be written; the pieces before it have
  /// theirs
  bool fill(std::uint64_t offset, const std::byte* from, std::uint32_t length) const noexcept;

 private:
  const region_table& regions_;
  const ibv_pd* domain_;
  const receive_queue::receive& work_;
};

}  // namespace softverbs
