// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define SOFTVERBS_HAS_VALGRIND
#endif

/// Marks functions that access the program's memory as a device would. AddressSanitizer and
/// ThreadSanitizer must not check them, because the program may have poisoned the memory, and the
/// program's own accesses to it need not be atomic.
#define SOFTVERBS_AS_A_DEVICE __attribute__((no_sanitize("address", "thread")))

// Symbols of the runtimes of AddressSanitizer and ThreadSanitizer. Their addresses are not null in
// programs that are linked with the sanitizer, even if this library was compiled without it.
extern "C" __attribute__((weak)) void __asan_poison_memory_region(const volatile void*,
                                                                  std::size_t);

extern "C" __attribute__((weak)) void __tsan_acquire(void*);

namespace softverbs {

/// True if ThreadSanitizer intercepts signals, and forwards them to the program's handlers.
inline bool is_thread_sanitized() noexcept { return __tsan_acquire != nullptr; }

/// True if AddressSanitizer checks the arguments of C library functions.
inline bool is_sanitized() noexcept { return __asan_poison_memory_region != nullptr; }

/// True if the program runs under Valgrind. Always false if this library was built without
/// Valgrind's headers.
inline bool is_emulated() noexcept {
#if defined(SOFTVERBS_HAS_VALGRIND)
  static const bool emulated = RUNNING_ON_VALGRIND != 0;
  return emulated;
#else
  return false;
#endif
}

/// While an object of this class exists, Valgrind reports no errors of the thread that created it.
/// Valgrind checks all instructions and the arguments of system calls, so functions can't be
/// exempted by attributes. Outside Valgrind, the object has no effect.
class unwatched {
 public:
  unwatched() noexcept {
#if defined(SOFTVERBS_HAS_VALGRIND)
    if (is_emulated()) VALGRIND_DISABLE_ERROR_REPORTING;
#endif
  }
  unwatched(const unwatched&) = delete;
  unwatched& operator=(const unwatched&) = delete;
  ~unwatched() {
#if defined(SOFTVERBS_HAS_VALGRIND)
    if (is_emulated()) VALGRIND_ENABLE_ERROR_REPORTING;
#endif
  }
};

/// Marks memory as defined after a system call has written it for the device. Memcheck doesn't
/// follow process_vm_writev. Memory that the program has marked as inaccessible remains
/// inaccessible.
inline void mark_as_written([[maybe_unused]] void* memory,
                            [[maybe_unused]] std::size_t length) noexcept {
#if defined(SOFTVERBS_HAS_VALGRIND)
  if (is_emulated()) VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(memory, length);
#endif
}

}  // namespace softverbs
