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

/// The purpose of memory, as reported to a program's allocator. The upper half of the number is the
/// ID of a kernel driver. It is 0 here, because soft devices have no kernel driver.
enum class queue_content : std::uint64_t { sends = 1, receives = 2, completions = 3 };

struct queue_memory {
  void* start = nullptr;
  /// The domain whose allocator was used; null if none was.
  protection_domain* domain = nullptr;
};

/// Allocates memory for a queue. Uses the allocator of `domain`, unless the domain is null or has
/// no allocator, or the allocator declines. Throws std::bad_alloc if there is no memory. Must be
/// called without locks, because the allocator is the program's code.
queue_memory allocate_for_queue(protection_domain* domain, std::size_t size, queue_content content);
/// Frees the memory without accessing it, because the program may have unmapped it. Does nothing if
/// the domain has an allocator but no deallocator.
void free_of_queue(const queue_memory& memory, queue_content content) noexcept;

/// The alignment of a queue's memory, in bytes.
inline constexpr std::size_t queue_alignment = 64;

/// The entries of a queue. Only their members with initializers are initialized, because most of a
/// deep queue is never used.
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
  /// Stored in this object and not in front of the entries, because the program may free the
  /// entries' memory before it destroys the queue.
  protection_domain* domain_ = nullptr;
};

}  // namespace softverbs
