// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace softverbs {

class device_context;

struct protection_domain final : ibv_pd {
  /// Objects made from it, which keep it busy.
  unsigned children = 0;
};

struct memory_region final : ibv_mr {
  /// What the address of the first byte is called in work requests.
  std::uint64_t iova = 0;
  unsigned access = 0;
};

/// An lkey and an rkey of the same region differ in this bit: a program that mixes
/// them up works on some devices only.
inline constexpr std::uint32_t remote_key_bit = 0x8000'0000U;

/// Finds regions by key. A key is 23 bits of index and 8 bits of variant, which
/// changes whenever the index is used again; so a key that outlived its region
/// fails.
class region_table {
 public:
  /// Gives the region its keys; 0 or an errno.
  int add(memory_region& region);
  void remove(const memory_region& region) noexcept;

  /// The memory that a gather or scatter entry names, null if it may not.
  std::byte* local(const ibv_pd* domain, std::uint32_t lkey, std::uint64_t address,
                   std::uint64_t length, bool writes) const noexcept;

  /// The memory that a peer may use with `right`, null if it may not.
  std::byte* remote(const ibv_pd* domain, std::uint32_t rkey, std::uint64_t address,
                    std::uint64_t length, unsigned right) const noexcept;

 private:
  struct slot {
    memory_region* region = nullptr;
    std::uint8_t variant = 0;
  };
  memory_region* find(std::uint32_t key) const noexcept;

  std::vector<slot> slots_;
  std::deque<std::uint32_t> free_;
};

/// What the kernel would check before it pins the memory; 0 or an errno.
int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept;

}  // namespace softverbs
