// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace softverbs {

/// A program's promise that only one thread at a time uses what is made under it.
struct thread_domain final : ibv_td {
  unsigned children = 0;
};

/// A protection domain; or a parent domain, which is one for all that it matters to, but stands for
/// the domain that it was made of.
struct protection_domain final : ibv_pd {
  /// Objects made from it, which keep it busy.
  unsigned children = 0;
  /// No other one of the process ever has it; of a parent domain, that of the domain below.
  std::uint32_t number = 0;
  /// Of a parent domain.
  protection_domain* below = nullptr;
  thread_domain* thread = nullptr;

  bool is_parent_domain() const noexcept { return below != nullptr; }
};

/// Objects of domains with the same number may be used with each other.
inline std::uint32_t number_of(const ibv_pd* domain) noexcept {
  return static_cast<const protection_domain*>(domain)->number;
}
inline bool same_domain(const ibv_pd* left, const ibv_pd* right) noexcept {
  return number_of(left) == number_of(right);
}

}  // namespace softverbs
