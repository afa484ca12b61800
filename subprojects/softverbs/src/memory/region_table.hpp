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

/// An lkey and an rkey of the same region differ in this bit: a program that mixes
/// them up works on some devices only.
inline constexpr std::uint32_t remote_key_bit = 0x8000'0000U;

/// The index of a region is above the variant of its key.
inline constexpr unsigned key_index_shift = 8;

/// Finds regions and windows by key. A key is 23 bits of index and 8 bits of variant,
/// which changes whenever the index is used again; so a key that outlived its region
/// fails. Of a window, whoever binds it chooses the variant.
class region_table {
 public:
  /// Before all else: everything in this table is shown there, too.
  void show_in(published_tables& tables) noexcept { shown_ = &tables; }

  /// Gives the region its keys; 0 or an errno.
  int add(memory_region& region);
  // Before that, it is hidden, and those are waited for who use it.
  void remove(const memory_region& region) noexcept;
  /// Until it is removed or shown again, nobody finds it who doesn't ask this table.
  void hide(const memory_region& region) noexcept { shown_->regions[region.handle].hide(); }
  void show(const memory_region& region) noexcept;
  int add(memory_window& window);
  void remove(memory_window& window) noexcept;

  /// What requests ask for; false if they may not. Wait for who uses the window.
  bool bind(const ibv_qp& pair, const window_binding& asked) noexcept;
  bool invalidate(const ibv_qp& pair, std::uint32_t rkey) noexcept;
  /// Nothing is seen any more through what the queue pair has bound.
  void forget(const ibv_qp& pair) noexcept;

  /// The region of a handle, null if there is none.
  memory_region* region_at(std::uint32_t index) const noexcept {
    return index < slots_.size() ? slots_[index].region : nullptr;
  }

  /// The number of the domain that a region belongs to; 0 if that is none.
  std::uint32_t domain_of(std::uint32_t index) const noexcept;

  /// The region of an lkey, null if there is none.
  const memory_region* region_of(std::uint32_t lkey) const noexcept;

  /// The memory that a gather or scatter entry names, null if it may not.
  std::byte* local(const ibv_pd* domain, std::uint32_t lkey, std::uint64_t address,
                   std::uint64_t length, bool writes) const noexcept;

  /// Whose memory a peer asks for: through which queue pair, and of which domain, by its number.
  struct reach {
    const ibv_qp& pair;
    std::uint32_t domain;
  };
  /// The memory that the peer may use with `right`, null if it may not.
  std::byte* remote(const reach& within, std::uint32_t rkey, std::uint64_t address,
                    std::uint64_t length, unsigned right) const noexcept;

  /// All of a region, by its key; empty if the peer may not use it with `right`.
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
  int take_index(std::uint32_t& index);
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
