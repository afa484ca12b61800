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

  bool may_be_filled() const noexcept;
  /// From that place on; false if it may not be.
  bool fill(std::uint64_t offset, const std::byte* from, std::uint32_t length) const noexcept;

 private:
  std::byte* start_of(const ibv_sge& piece) const noexcept;

  const region_table& regions_;
  const ibv_pd* domain_;
  const receive_queue::receive& work_;
};

}  // namespace softverbs
