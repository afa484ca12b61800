// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/shared_memory.hpp"
#include "device/device.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace softverbs {

// All that peers may see has types of which any bits are a value, as they may be anybody's.

/// A region, or a window that is bound, as whoever accesses it directly has to know it.
struct shown_region {
  /// The lkey; the rkey has one bit more.
  std::uint32_t key;
  std::uint32_t access;
  std::uint32_t domain;
  /// The number of the queue pair that alone may use it, 0 if all of the domain may.
  std::uint32_t pair;
  std::uint64_t start;  ///< what the address of the first byte is called
  std::uint64_t length;
  std::uint64_t memory;  ///< where that is in its process
  std::uint8_t is_window;
  std::uint8_t is_device_memory;  ///< which peers have mapped
};

/// A queue pair, as its peer has to know it who carries out requests on its behalf.
struct shown_pair {
  std::uint32_t number;
  std::uint32_t peer;
  std::uint32_t domain;
  std::uint32_t access;
  std::uint8_t service;
  std::uint8_t network;
  station here;
  station there;
  std::uint8_t fetches;  ///< it takes so many at a time
  std::uint8_t has_atomics;
};

/// One place in a table that is written by one thread at a time and read by any, of any process,
/// without a lock: who reads while it is written finds nothing. What another process has written is
/// not to be believed. Zeros are a place that shows nothing.
template <typename Shown>
class published {
 public:
  void show(const Shown& what) noexcept;
  /// From here on nobody finds it, but whoever has may still be using it.
  void hide() noexcept;
  std::optional<Shown> read() const noexcept;

 private:
  static constexpr std::size_t words = (sizeof(Shown) + 7) / 8;
  static_assert(std::is_trivially_copyable_v<Shown>);

  /// 0 while nothing is shown; odd while it is being written.
  std::atomic<std::uint64_t> version_;
  std::uint64_t versions_so_far_;  ///< the writer's
  std::array<std::atomic<std::uint64_t>, words> words_;
};

/// What a process tells its peers, so that they can access its memory without its help: in shared
/// memory that only it can write. Has as many places as there are numbers.
struct published_tables {
  /// In a cache line of its own.
  struct alignas(64) pair_place {
    published<shown_pair> shown;
    /// The packet sequence number that is expected next; changes by itself.
    std::atomic<std::uint32_t> expected_psn;
  };

  /// Faults have been asked for: all has to go as packets.
  std::atomic<std::uint32_t> faulty;
  /// A random number, and where in its process the same one is: so somebody who has waited for long
  /// can see that the process of that number is still the same.
  std::atomic<std::uint64_t> mark;
  std::atomic<std::uint64_t> address_of_mark;
  /// Where the memory of its devices is in its process; 0 if it has none.
  std::atomic<std::uint64_t> device_memory;

  /// By the lower part of their numbers.
  std::array<pair_place, std::size_t{1} << 14> pairs;
  /// By the index in their keys.
  std::array<published<shown_region>, limits::memory_regions> regions;
};

/// New ones, of which only what is used takes memory; null if there can't be any. A child of fork
/// doesn't inherit them.
published_tables* publish_tables(shared_memory& into) noexcept;
/// Those of another process; null if it has none of this kind.
const published_tables* tables_in(const shared_memory& mapped) noexcept;

}  // namespace softverbs
