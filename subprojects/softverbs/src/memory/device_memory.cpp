// SPDX-License-Identifier: Apache-2.0
#include "memory/device_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace softverbs {
namespace {

/// The granularity of allocations: only whole pages can be returned to the kernel.
constexpr std::size_t allocation_unit = 4096;

constexpr std::size_t rounded_up(std::size_t size, std::size_t unit) noexcept {
  return (size + unit - 1) & ~(unit - 1);
}

/// Fills whole pages with zeros, if possible by returning them to the kernel.
void clear(std::span<std::byte> pages) noexcept {
  if (::madvise(pages.data(), pages.size(), MADV_REMOVE) != 0)
    std::memset(pages.data(), 0, pages.size());
}

}  // namespace

int device_memory_pool::open() noexcept {
  if (memory_) return 0;
  if (const int error = memory_.create(bytes_, shared_memory::others::write)) return error;
  ::madvise(start(), bytes_, MADV_DONTFORK);
  return 0;
}

std::span<std::byte> device_memory_pool::take(std::size_t length, std::size_t alignment) noexcept
    try {
  if (!memory_ || length > bytes_ || alignment > bytes_) return {};
  const std::size_t size = rounded_up(length, allocation_unit);
  const std::size_t step = std::max(alignment, allocation_unit);
  std::size_t at = 0;
  for (const auto& [start, end] : taken_) {
    if (size <= start - std::min(at, start)) break;
    at = rounded_up(end, step);
  }
  if (at > bytes_ || size > bytes_ - at) return {};
  // A peer that has mapped the pool may have written to a free part.
  clear(memory_.bytes().subspan(at, size));
  taken_.emplace(at, at + size);
  return memory_.bytes().subspan(at, length);
} catch (const std::bad_alloc&) {
  return {};
}

void device_memory_pool::give_back(std::span<std::byte> part) noexcept {
  const auto at = taken_.find(static_cast<std::size_t>(part.data() - start()));
  clear(memory_.bytes().subspan(at->first, at->second - at->first));
  taken_.erase(at);
}

}  // namespace softverbs
