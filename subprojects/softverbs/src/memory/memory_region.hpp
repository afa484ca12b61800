// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

struct memory_region final : ibv_mr {
  /// What the address of the first byte is called in work requests.
  std::uint64_t iova = 0;
  unsigned access = 0;
  unsigned windows = 0;  ///< that are bound to it
};

/// What the kernel would check before it pins the memory; 0 or an errno.
int check_registration(const void* address, std::size_t length, std::uint64_t iova,
                       unsigned access) noexcept;

}  // namespace softverbs
