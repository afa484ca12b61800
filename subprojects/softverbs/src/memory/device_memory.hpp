// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/shared_memory.hpp"
#include "memory/importable.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <map>
#include <span>

namespace softverbs {

/// Device memory that a program has allocated: a part of `device_memory_pool`.
struct device_memory final : ibv_dm, importable<device_memory> {
  // These members are valid only in the structure that was created with the memory (see
  // `importable`). The engine's lock protects them.
  std::span<std::byte> bytes;
  unsigned regions = 0;  ///< the number of regions registered in it
};

/// The memory of all devices of a process. Peers can map it, and then access it like their own
/// memory, also with atomics. Protected by the engine's lock.
class device_memory_pool {
 public:
  explicit device_memory_pool(std::size_t bytes) noexcept : bytes_(bytes) {}

  /// Creates the memory. Returns 0 or an errno value. If this fails or is not called, `take` finds
  /// no room. A forked child doesn't inherit the memory.
  int open() noexcept;
  /// Allocates memory filled with zeros, at an offset in the pool that is divisible by `alignment`,
  /// which is a power of two. Returns an empty span if there is no room.
  std::span<std::byte> take(std::size_t length, std::size_t alignment) noexcept;
  void give_back(std::span<std::byte> part) noexcept;

  /// The descriptor that peers map; negative if there is none.
  int descriptor() const noexcept { return memory_.descriptor(); }
  /// The address of the memory in this process.
  std::byte* start() const noexcept { return memory_.bytes().data(); }

 private:
  std::size_t bytes_;
  shared_memory memory_;
  /// The parts in use: the offset of each part's end, indexed by the offset of its start. Both are
  /// multiples of the allocation unit.
  std::map<std::size_t, std::size_t> taken_;
};

}  // namespace softverbs
