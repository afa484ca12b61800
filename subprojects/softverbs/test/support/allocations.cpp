// SPDX-License-Identifier: Apache-2.0
#include "support/allocations.hpp"

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
bool allocations::can_be_limited() noexcept { return false; }
#else
namespace {

thread_local int left = -1;

}  // namespace

void allocations::limit_to(int count) noexcept { left = count; }
bool allocations::can_be_limited() noexcept { return true; }

void* operator new(std::size_t size) {
  if (left == 0) throw std::bad_alloc();
  if (left > 0) --left;
  // Even allocations of zero bytes must have different addresses.
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* operator new(std::size_t size, const std::nothrow_t&) noexcept try {
  return ::operator new(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
