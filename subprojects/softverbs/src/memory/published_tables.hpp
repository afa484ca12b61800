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

// All types here are valid with any bit pattern, because another process may write arbitrary data.

/// The properties of a region, or of a bound window, that a peer needs for direct access.
struct shown_region {
  /// The rkey without its highest bit; for a region, this is the lkey.
  std::uint32_t key;
  std::uint32_t access;
  std::uint32_t domain;
  /// The number of the only queue pair that may use this memory; 0 if all queue pairs of the domain
  /// may use it.
  std::uint32_t pair;
  std::uint64_t start;  ///< the address that work requests use for the first byte
  std::uint64_t length;
  std::uint64_t memory;  ///< the address that the owning process uses for the first byte
  std::uint8_t is_window;
  /// True for a region of device memory, which peers may have mapped; false for windows.
  std::uint8_t is_device_memory;
};

/// The properties of a queue pair that its peer needs in order to carry out requests directly, in
/// the queue pair's place.
struct shown_pair {
  std::uint32_t number;
  std::uint32_t peer;
  std::uint32_t domain;
  std::uint32_t access;
  std::uint8_t service;
  std::uint8_t network;
  station here;
  station there;
  std::uint8_t fetches;  ///< how many reads and atomics it accepts at a time
  std::uint8_t has_atomics;
};

/// One entry of a table. One thread at a time writes it, and threads of any process read it without
/// a lock. A read returns nothing if the entry is hidden, or is written at the same time. Data from
/// another process must not be trusted. An entry of all zeros is hidden.
template <typename Shown>
class published {
 public:
  void show(const Shown& what) noexcept;
  /// Hides the entry. Threads that have read it before may still be using the data.
  void hide() noexcept;
  std::optional<Shown> read() const noexcept;

 private:
  static constexpr std::size_t words = (sizeof(Shown) + 7) / 8;
  static_assert(std::is_trivially_copyable_v<Shown>);

  /// 0 while the entry is hidden; odd during a write.
  std::atomic<std::uint64_t> version_;
  std::uint64_t versions_so_far_;  ///< used only by the writer
  std::array<std::atomic<std::uint64_t>, words> words_;
};

/// Tables by which a process lets its peers access its memory without its participation. They are
/// in shared memory that only this process can write, with one entry for each possible number of a
/// queue pair or region.
struct published_tables {
  /// Aligned to a cache line, so that no two queue pairs share a cache line.
  struct alignas(64) pair_place {
    published<shown_pair> shown;
    /// The next expected packet sequence number; updated independently of `shown`.
    std::atomic<std::uint32_t> expected_psn;
  };

  /// Nonzero while `faults::any` is true: all operations then have to use packets.
  std::atomic<std::uint32_t> faulty;
  /// A random number, and the address at which the tables' owner holds the same number. With these,
  /// a peer whose last check was some time ago can check that the owner's process ID still refers
  /// to the owner.
  std::atomic<std::uint64_t> mark;
  std::atomic<std::uint64_t> address_of_mark;
  /// The address at which the tables' owner has mapped its device memory; 0 if it has none.
  std::atomic<std::uint64_t> device_memory;

  /// Indexed by the lower part of the queue pair number.
  std::array<pair_place, std::size_t{1} << 14> pairs;
  /// Indexed by the index that is part of the key.
  std::array<published<shown_region>, limits::memory_regions + 1> regions;
};

/// Creates new tables. Memory is allocated only for the pages that are used. Returns null on
/// failure. A forked child doesn't inherit the tables.
published_tables* publish_tables(shared_memory& into) noexcept;
/// Returns the tables of another process, or null if the memory has the wrong size.
const published_tables* tables_in(const shared_memory& mapped) noexcept;

}  // namespace softverbs
