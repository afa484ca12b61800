// SPDX-License-Identifier: Apache-2.0
#include "counter.hpp"

#include "../sanitized.hpp"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

thread_local int counted = 0;
thread_local int depth_in_device = 0;

void count() noexcept {
  if (depth_in_device == 0) ++counted;
}

/// Returns the next definition of the function: the one that would be called if this file did not
/// define it.
template <class Function>
Function* next(Function*, const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no library defines %s, which the tests replace\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define VERBSPP_TEST_NEXT(name) next(&name, #name)

}  // namespace

namespace verbspp::test {

int allocations() noexcept { return counted; }
within_device::within_device() noexcept { ++depth_in_device; }
within_device::~within_device() { --depth_in_device; }

}  // namespace verbspp::test

using verbspp::test::within_device;

// The data path calls these functions of libibverbs directly, not through a pointer. They count as
// part of the device, so their allocations are not counted.
extern "C" {

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user_context) {
  const within_device device;
  return VERBSPP_TEST_NEXT(ibv_get_cq_event)(channel, queue, user_context);
}
void ibv_ack_cq_events(ibv_cq* queue, unsigned events) {
  const within_device device;
  VERBSPP_TEST_NEXT(ibv_ack_cq_events)(queue, events);
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  const within_device device;
  return VERBSPP_TEST_NEXT(ibv_get_async_event)(context, event);
}
void ibv_ack_async_event(ibv_async_event* event) {
  const within_device device;
  VERBSPP_TEST_NEXT(ibv_ack_async_event)(event);
}
}

#if defined(VERBSPP_TEST_SANITIZED)

// Sanitizers replace the allocator with their own, whose hooks can count the allocations.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             std::size_t),
                                                         void (*free_hook)(const volatile void*));

namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { count(); }, [](const volatile void*) {});
}  // namespace

#else

// glibc lets a program replace malloc and its related functions, both for itself and for all of its
// libraries. operator new calls them, too.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): glibc's names
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(std::size_t size) noexcept {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) noexcept {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  count();
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** to, std::size_t alignment, std::size_t size) noexcept {
  count();
  *to = __libc_memalign(alignment, size);
  return *to == nullptr ? ENOMEM : 0;
}
}

#endif
