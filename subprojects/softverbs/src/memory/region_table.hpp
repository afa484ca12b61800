// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/memory_region.hpp"
#include "memory/memory_window.hpp"
#include "memory/published_tables.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace softverbs {

/// The bit in which the lkey and the rkey of a region differ. If they were equal, a program that
/// mixes them up would work here, but could fail on other devices.
inline constexpr std::uint32_t remote_key_bit = 0x8000'0000U;

/// The position, in a key, of the lowest bit of the index. The bits below it hold the variant.
inline constexpr unsigned key_index_shift = 8;

/// Finds regions and windows by key. A key consists of an index (23 bits) and a variant (8 bits).
/// The variant changes each time the index is reused, so the key of a removed region is refused
/// until the variant, which has 256 values, repeats. The variant of a window's key is chosen by the
/// request that binds the window.
class region_table {
 public:
  /// Sets the tables in which all regions and windows are published. Must be called before all
  /// other functions.
  void show_in(published_tables& tables) noexcept { shown_ = &tables; }

  /// Assigns the region its keys. Returns 0 or an errno value.
  int add(memory_region& region) noexcept;
  // Before the call, the caller must hide the region, and wait for the threads that are using it.
  void remove(const memory_region& region) noexcept;
  /// Hides the region from direct accesses until it is shown again or removed. Lookups in this
  /// table still find it.
  void hide(const memory_region& region) noexcept { shown_->regions[region.handle].hide(); }
  void show(const memory_region& region) noexcept;
  int add(memory_window& window) noexcept;
  void remove(memory_window& window) noexcept;

  /// These functions carry out a bind or invalidate request, and wait for threads that are using
  /// the window. They return false if the request is not permitted.
  bool bind(const ibv_qp& pair, const window_binding& asked) noexcept;
  bool invalidate(const ibv_qp& pair, std::uint32_t rkey) noexcept;
  /// Unbinds all windows of type 2 that the queue pair has bound.
  void forget(const ibv_qp& pair) noexcept;

  /// Returns the region with this handle, or null if there is none.
  memory_region* region_at(std::uint32_t index) const noexcept {
    return index < slots_.size() ? slots_[index].region : nullptr;
  }

  /// Returns the number of the domain that a region belongs to, or 0 if no region has this index.
  std::uint32_t domain_of(std::uint32_t index) const noexcept;

  /// Returns the region with this lkey, or null if there is none.
  const memory_region* region_of(std::uint32_t lkey) const noexcept;

  /// Returns the memory that a gather or scatter entry refers to, or null if the access is not
  /// permitted.
  std::byte* local(const ibv_pd* domain, std::uint32_t lkey, std::uint64_t address,
                   std::uint64_t length, bool writes) const noexcept;

  /// The scope of a peer's access: the queue pair through which the peer accesses memory, and the
  /// number of the domain whose memory it may access. For XRC, this is the shared receive queue's
  /// domain.
  struct reach {
    const ibv_qp& pair;
    std::uint32_t domain;
  };
  /// Returns the memory that the peer may access with `right`, or null if the access is not
  /// permitted.
  std::byte* remote(const reach& within, std::uint32_t rkey, std::uint64_t address,
                    std::uint64_t length, unsigned right) const noexcept;

  /// Returns the whole region with this rkey. Returns an empty span if access with `right` is not
  /// permitted, or if the key belongs to a window.
  std::span<std::byte> all_of(const reach& within, std::uint32_t rkey,
                              unsigned right) const noexcept;

 private:
  struct slot {
    memory_region* region = nullptr;
    memory_window* window = nullptr;
    std::uint8_t variant = 0;
  };
  void show(const memory_window& window) noexcept;
  void unbind(memory_window& window) noexcept;
  int take_index(std::uint32_t& index) noexcept;
  void free(std::uint32_t index) noexcept;
  std::uint32_t key_of(std::uint32_t index) const noexcept;
  const slot* find(std::uint32_t key) const noexcept;
  static std::byte* through(const memory_window& window, const reach& within, std::uint64_t address,
                            std::uint64_t length, unsigned right) noexcept;

  published_tables* shown_ = nullptr;
  std::vector<slot> slots_;
  std::deque<std::uint32_t> free_;
  std::size_t windows_ = 0;
};

}  // namespace softverbs
