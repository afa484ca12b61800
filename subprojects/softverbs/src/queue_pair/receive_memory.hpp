// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/region_table.hpp"
#include "queue_pair/receive_queue.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// The memory that a receive request refers to. The memory is looked up in a domain on each access.
class receive_memory {
 public:
  receive_memory(const region_table& regions, const ibv_pd* domain,
                 const receive_queue::receive& work) noexcept
      : regions_(regions), domain_(domain), work_(work) {}

  /// Copies `length` bytes to `offset` in this memory, one scatter entry after another. Checks only
  /// the memory that it writes. Returns false at the first entry whose memory can't be written.
  /// By then, the entries before that one have been written.
  bool fill(std::uint64_t offset, const std::byte* from, std::uint32_t length) const noexcept;

 private:
  const region_table& regions_;
  const ibv_pd* domain_;
  const receive_queue::receive& work_;
};

}  // namespace softverbs
