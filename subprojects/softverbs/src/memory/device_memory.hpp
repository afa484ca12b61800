// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/shared_memory.hpp"
#include "memory/importable.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <map>
#include <span>

namespace softverbs {

/// Memory of the device that a program has allocated: a part of `device_memory_pool`.
struct device_memory final : ibv_dm, importable<device_memory> {
  // Of the original. The engine's lock protects them.
  std::span<std::byte> bytes;
  unsigned regions = 0;  ///< that are registered
};

/// The memory of all devices of a process, which its peers map: what they write and read there
/// takes no system call, and atomics are those of the processors. Under the engine's lock.
class device_memory_pool {
 public:
  explicit device_memory_pool(std::size_t bytes) noexcept : bytes_(bytes) {}

  /// 0 or an errno; without it, there is nothing to take. A child of fork doesn't inherit it.
  int open() noexcept;
  /// Zeros, at an address that `alignment` divides, a power of two; empty if there is no room.
  std::span<std::byte> take(std::size_t length, std::size_t alignment);
  void give_back(std::span<std::byte> part) noexcept;

  /// For peers; negative if there is none.
  int descriptor() const noexcept { return memory_.descriptor(); }
  /// Where it is in this process.
  std::byte* start() const noexcept { return memory_.bytes().data(); }

 private:
  std::size_t bytes_;
  shared_memory memory_;
  /// The ends of what is taken, by where that starts: whole pages.
  std::map<std::size_t, std::size_t> taken_;
};

}  // namespace softverbs
