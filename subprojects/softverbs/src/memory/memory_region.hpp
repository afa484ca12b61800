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
  /// True while a thread is taking the region out of use, in order to deregister or change it.
  bool is_leaving = false;
  /// The region's first byte. In regions of dma-bufs and of device memory, it is not at `addr`.
  std::byte* memory = nullptr;
  /// The device memory that the region is in, or null.
  device_memory* device = nullptr;
  /// The mapping that contains the region, if it is a dma-buf region.
  std::shared_ptr<const buffer_mapping> buffer{};
  /// The address that work requests use for the first byte.
  std::uint64_t iova = 0;
  unsigned access = 0;
  unsigned windows = 0;  ///< the number of windows bound to it
};

/// Checks that all access rights are `known` and `supported`, and don't contradict each other.
/// Optional rights are ignored. Returns 0, EINVAL, or EOPNOTSUPP for a right that is known but not
/// supported.
int check_rights(unsigned access, unsigned known, unsigned supported) noexcept;

/// Populates the pages of a range, as pinning the range would. Returns 0, or EFAULT if some pages
/// aren't mapped or don't permit the access. On kernels that can't populate pages, this returns 0
/// and does nothing.
int bring_in(std::uintptr_t start, std::size_t length, bool writes) noexcept;

/// Checks that the size of a region is valid, that its addresses don't overflow, and that `start`
/// and `iova` have the same offset within a page. `start` is the position of the region in the
/// memory or file that contains it. Returns 0 or an errno value.
int check_range(std::uint64_t start, std::size_t length, std::uint64_t iova) noexcept;

/// Checks a registration. Unless it is for on-demand paging, all pages must be mapped; only the
/// first and the last one are checked for access rights. Returns 0 or an errno value.
int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept;

}  // namespace softverbs
