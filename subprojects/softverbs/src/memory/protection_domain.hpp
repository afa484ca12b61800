// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace softverbs {

struct protection_domain;

/// A thread domain: the program promises that only one thread at a time uses the objects created
/// under it.
struct thread_domain final : ibv_td {
  unsigned children = 0;
};

/// The state of a protection domain, shared by all structures that were created or imported for it.
struct shared_domain {
  /// The number of objects created from the domain. The domain can't be destroyed while there are
  /// any.
  unsigned children = 0;
  bool destroyed = false;
  /// Used while a context is being closed: the structure that represents the domain afterwards, or
  /// null if there is none.
  protection_domain* heir = nullptr;
};

/// A protection domain, or a parent domain. A parent domain is used like a protection domain, and
/// refers to the one that it was created from.
struct protection_domain final : ibv_pd {
  explicit protection_domain(
      std::shared_ptr<shared_domain> same = std::make_shared<shared_domain>()) noexcept
      : ibv_pd{}, of(std::move(same)), children(of->children) {}

  const std::shared_ptr<shared_domain> of;
  unsigned& children;
  /// True if the program has unimported this structure, or has closed its context. Objects created
  /// from it may still refer to it.
  bool unimported = false;
  /// Identifies the domain in the process, and is never reused. Imported structures of the domain,
  /// and the parent domains created from it, have the same number.
  std::uint32_t number = 0;
  /// The domain that a parent domain was created from, and its thread domain, if it has one. Null
  /// for protection domains.
  protection_domain* below = nullptr;
  thread_domain* thread = nullptr;
  /// Parent domains only: the program's allocator for queues created under the domain, or null. It
  /// is called with the parent domain.
  decltype(ibv_parent_domain_init_attr::alloc) allocate = nullptr;
  decltype(ibv_parent_domain_init_attr::free) free = nullptr;
  void* allocators_context = nullptr;

  bool is_parent_domain() const noexcept { return below != nullptr; }
};

/// Returns the number of a domain. Objects may be used together if the numbers of their domains are
/// equal.
inline std::uint32_t number_of(const ibv_pd* domain) noexcept {
  return static_cast<const protection_domain*>(domain)->number;
}
inline bool same_domain(const ibv_pd* left, const ibv_pd* right) noexcept {
  return number_of(left) == number_of(right);
}

}  // namespace softverbs
