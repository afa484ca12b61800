// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/protection_domain.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace softverbs {

/// What a program's allocator is told that memory is for. The upper half of that number names the
/// kernel's driver, of which there is none.
enum class queue_content : std::uint64_t { sends = 1, receives = 2, completions = 3 };

struct queue_memory {
  void* start = nullptr;
  /// Whose allocator it is of; null if it is of nobody's.
  protection_domain* domain = nullptr;
};

/// Memory for a queue: of the allocator of a parent domain, if it has one that wants to. Throws
/// std::bad_alloc. Without any lock, because the allocator is the program's.
queue_memory allocate_for_queue(protection_domain* domain, std::size_t size, queue_content content);
/// Does not look into it. If the domain has nobody to free it, it is left to the program, which may
/// have unmapped it.
void free_of_queue(const queue_memory& memory, queue_content content) noexcept;

/// Its alignment.
inline constexpr std::size_t queue_alignment = 64;

/// The places of a queue, which aren't initialized: most of a deep queue is never used.
template <typename Place, queue_content Content>
class queue_array {
  static_assert(std::is_trivially_destructible_v<Place> && alignof(Place) <= queue_alignment);

 public:
  /// None for a count of 0. The domain may be null.
  queue_array(std::size_t count, protection_domain* domain) {
    if (count == 0) return;
    const queue_memory memory = allocate_for_queue(domain, count * sizeof(Place), Content);
    first_ = static_cast<Place*>(memory.start);
    domain_ = memory.domain;
    std::uninitialized_default_construct_n(first_, count);
  }
  queue_array(const queue_array&) = delete;
  queue_array& operator=(const queue_array&) = delete;
  ~queue_array() {
    if (first_ != nullptr) free_of_queue({first_, domain_}, Content);
  }

  Place* get() const noexcept { return first_; }
  Place& operator[](std::size_t index) const noexcept { return first_[index]; }
  void swap(queue_array& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(domain_, other.domain_);
  }

 private:
  Place* first_ = nullptr;
  /// Here, and not in front of the places: the program's memory may be gone before this.
  protection_domain* domain_ = nullptr;
};

}  // namespace softverbs
