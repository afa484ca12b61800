// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/importable.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace softverbs {

class buffer_mapping;
struct device_memory;

struct memory_region final : ibv_mr, importable<memory_region> {
  /// A thread is taking the region out of use.
  bool is_leaving = false;
  /// The first byte. `addr` is the address that the program passed.
  std::byte* memory = nullptr;
  /// The device memory that the region is in, or null.
  device_memory* device = nullptr;
  /// The mapping that the region is in, if it is a dma-buf region.
  std::shared_ptr<const buffer_mapping> buffer{};
  /// The address of the first byte in work requests.
  std::uint64_t iova = 0;
  unsigned access = 0;
  unsigned windows = 0;  ///< the number of windows bound to it
};

/// Checks that access rights are among the `known` and `supported` ones, and don't contradict each
/// other. Returns 0 or an errno value.
int check_rights(unsigned access, unsigned known, unsigned supported) noexcept;

/// Populates pages as pinning would. Returns 0, or EFAULT if some aren't mapped or may not be
/// accessed in this way.
int bring_in(std::uintptr_t start, std::size_t length, bool writes) noexcept;

/// Checks the size of a region, and that its addresses don't overflow. `start` is its position in
/// the containing memory or file. Returns 0 or an errno value.
int check_range(std::uint64_t start, std::size_t length, std::uint64_t iova) noexcept;

/// Checks what the kernel would check before it pins the memory, or before it registers it for
/// on-demand paging. Returns 0 or an errno value.
int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept;

}  // namespace softverbs
