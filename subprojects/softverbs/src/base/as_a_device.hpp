// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define SOFTVERBS_HAS_VALGRIND
#endif

/// For functions that access the program's memory as a device would. The program may have marked
/// it untouchable for itself, and the other accesses are not all atomic ones.
#define SOFTVERBS_AS_A_DEVICE __attribute__((no_sanitize("address", "thread")))

// The sanitizer's own name, which is there in programs that are linked with it, whatever this
// library was compiled with.
extern "C" __attribute__((weak)) void __asan_poison_memory_region(const volatile void*,
                                                                  std::size_t);

namespace softverbs {

/// Whether AddressSanitizer looks at what functions of the C library are given.
inline bool is_sanitized() noexcept { return __asan_poison_memory_region != nullptr; }

/// Valgrind looks at what system calls are given, and at all instructions: as long as this lives,
/// it reports nothing of this thread. Without it, this is a look at a flag.
class unwatched {
 public:
#if defined(SOFTVERBS_HAS_VALGRIND)
  unwatched() noexcept {
    if (by_valgrind()) VALGRIND_DISABLE_ERROR_REPORTING;
  }
  ~unwatched() {
    if (by_valgrind()) VALGRIND_ENABLE_ERROR_REPORTING;
  }
#else
  unwatched() noexcept {}
  ~unwatched() {}
#endif
  unwatched(const unwatched&) = delete;
  unwatched& operator=(const unwatched&) = delete;

 private:
#if defined(SOFTVERBS_HAS_VALGRIND)
  static bool by_valgrind() noexcept {
    static const bool watched = RUNNING_ON_VALGRIND != 0;
    return watched;
  }
#endif
};

}  // namespace softverbs
