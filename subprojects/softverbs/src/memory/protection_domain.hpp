// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

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
  /// Of a parent domain.
  protection_domain* below = nullptr;
  thread_domain* thread = nullptr;

  bool is_parent_domain() const noexcept { return below != nullptr; }
};

/// Whether objects of one may be used with those of the other.
inline bool same_domain(const ibv_pd* left, const ibv_pd* right) noexcept {
  const auto protects = [](const ibv_pd* domain) {
    const auto* ours = static_cast<const protection_domain*>(domain);
    while (ours->below != nullptr) ours = ours->below;
    return ours;
  };
  return left == right || protects(left) == protects(right);
}

}  // namespace softverbs
