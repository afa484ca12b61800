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
  /// Somebody takes it out of use.
  bool is_leaving = false;
  /// The first byte; `addr` is what the program has given.
  std::byte* memory = nullptr;
  /// That it is a part of, if it is.
  device_memory* device = nullptr;
  /// That it lies in, if it is of a dma-buf.
  std::shared_ptr<const buffer_mapping> buffer{};
  /// What the address of the first byte is called in work requests.
  std::uint64_t iova = 0;
  unsigned access = 0;
  unsigned windows = 0;  ///< that are bound to it
};

/// Whether these rights don't contradict each other, where these are known and those supported; 0
/// or an errno.
int check_rights(unsigned access, unsigned known, unsigned supported) noexcept;

/// Brings pages in as pinning would: 0, or EFAULT if some aren't there, or may not be accessed so.
int bring_in(std::uintptr_t start, std::size_t length, bool writes) noexcept;

/// Whether something of this size may be called so, where `start` is its place in what it is a part
/// of; 0 or an errno.
int check_range(std::uint64_t start, std::size_t length, std::uint64_t iova) noexcept;

/// What the kernel would check before it pins the memory, or takes a note of it if it is to be
/// paged on demand; 0 or an errno.
int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept;

}  // namespace softverbs
