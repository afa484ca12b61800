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

/// The purpose of memory, as passed to a program's allocator. The upper half of the number
/// identifies the kernel's driver, which doesn't exist here.
enum class queue_content : std::uint64_t { sends = 1, receives = 2, completions = 3 };

struct queue_memory {
  void* start = nullptr;
  /// The domain whose allocator was used; null if none was.
  protection_domain* domain = nullptr;
};

/// Allocates memory for a queue with the allocator of a parent domain, if it has one that doesn't
/// decline. Throws std::bad_alloc. Takes no lock, because the allocator is the program's code.
queue_memory allocate_for_queue(protection_domain* domain, std::size_t size, queue_content content);
/// Does not access the memory, which the program may have unmapped. If the domain has an allocator
/// but no deallocator, this does nothing.
void free_of_queue(const queue_memory& memory, queue_content content) noexcept;

/// The alignment of this memory.
inline constexpr std::size_t queue_alignment = 64;

/// The entries of a queue. They aren't initialized, because most of a deep queue is never used.
template <typename Place, queue_content Content>
class queue_array {
  static_assert(std::is_trivially_destructible_v<Place> && alignof(Place) <= queue_alignment);

 public:
  /// Allocates nothing for a count of 0. The domain may be null.
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
  /// Stored here instead of in front of the entries, because the program may have freed its memory
  /// before.
  protection_domain* domain_ = nullptr;
};

}  // namespace softverbs
