// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace softverbs {

struct protection_domain;

/// A program's promise that only one thread at a time uses what is made under it.
struct thread_domain final : ibv_td {
  unsigned children = 0;
};

/// What of a domain is the device's, whatever has been made to stand for it by its handle.
struct shared_domain {
  /// Objects made from it, which keep it busy.
  unsigned children = 0;
  bool destroyed = false;
  /// That which stands for it from here on, when a context of the file is closed; null if none
  /// does.
  protection_domain* heir = nullptr;
};

/// A protection domain; or a parent domain, which is one for all that it matters to, but stands for
/// the domain that it was made of.
struct protection_domain final : ibv_pd {
  explicit protection_domain(
      std::shared_ptr<shared_domain> same = std::make_shared<shared_domain>()) noexcept
      : ibv_pd{}, of(std::move(same)), children(of->children) {}

  const std::shared_ptr<shared_domain> of;
  unsigned& children;
  /// The program has let go of it, but what was made of it may name it.
  bool unimported = false;
  /// No other one of the process ever has it; of a parent domain, that of the domain below.
  std::uint32_t number = 0;
  /// Of a parent domain.
  protection_domain* below = nullptr;
  thread_domain* thread = nullptr;
  /// Of a parent domain: the program's, for the queues made of it, or null. Called with the parent
  /// domain.
  decltype(ibv_parent_domain_init_attr::alloc) allocate = nullptr;
  decltype(ibv_parent_domain_init_attr::free) free = nullptr;
  void* allocators_context = nullptr;

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
