// SPDX-License-Identifier: Apache-2.0
#include "support/allocations.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// AddressSanitizer and ThreadSanitizer define these operators themselves.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER_ALLOCATES
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER_ALLOCATES
#endif

#if defined(SANITIZER_ALLOCATES)
void allocations::limit_to(int) noexcept {}
long allocations::not_freed() noexcept { return 0; }
bool allocations::can_be_limited() noexcept { return false; }
#else
namespace {

thread_local int left = -1;
std::atomic<long> kept{0};

}  // namespace

void allocations::limit_to(int count) noexcept { left = count; }
long allocations::not_freed() noexcept { return kept; }
bool allocations::can_be_limited() noexcept { return true; }

void* operator new(std::size_t size) {
  if (left == 0) throw std::bad_alloc();
  if (left > 0) --left;
  // Even allocations of zero bytes must have different addresses.
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  ++kept;
  return memory;
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept try {
  return ::operator new(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) --kept;
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { ::operator delete(memory); }
#endif
