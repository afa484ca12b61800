// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define SOFTVERBS_HAS_VALGRIND
#endif

/// For functions that access the program's memory as a device would. The program may have marked
/// it untouchable for itself, and the other accesses are not all atomic ones.
#define SOFTVERBS_AS_A_DEVICE __attribute__((no_sanitize("address", "thread")))

// The sanitizer's own name, which is there in programs that are linked with it, whatever this
// library was compiled with.
extern "C" __attribute__((weak)) void __asan_poison_memory_region(const volatile void*,
                                                                  std::size_t);

extern "C" __attribute__((weak)) void __tsan_acquire(void*);

namespace softverbs {

/// Whether ThreadSanitizer hands signals on to the program's handlers.
inline bool is_thread_sanitized() noexcept { return __tsan_acquire != nullptr; }

/// Whether AddressSanitizer looks at what functions of the C library are given.
inline bool is_sanitized() noexcept { return __asan_poison_memory_region != nullptr; }

/// Whether Valgrind executes this.
inline bool is_emulated() noexcept {
#if defined(SOFTVERBS_HAS_VALGRIND)
  static const bool emulated = RUNNING_ON_VALGRIND != 0;
  return emulated;
#else
  return false;
#endif
}

/// Valgrind looks at what system calls are given, and at all instructions: as long as this lives,
/// it reports nothing of this thread. Without it, this is a look at a flag.
class unwatched {
 public:
  unwatched() noexcept : unwatched(nullptr, 0) {}
  /// The same for writing there, which Valgrind takes for making it accessible: what was marked as
  /// untouchable is so again afterwards.
  unwatched(void* memory, std::size_t length) noexcept;
  unwatched(const unwatched&) = delete;
  unwatched& operator=(const unwatched&) = delete;
  ~unwatched();

#if defined(SOFTVERBS_HAS_VALGRIND)

 private:
  void* memory_;
  std::size_t length_;
#endif
};

#if defined(SOFTVERBS_HAS_VALGRIND)
inline unwatched::unwatched(void* memory, std::size_t length) noexcept
    : memory_(memory), length_(length) {
  if (!is_emulated()) return;
  VALGRIND_DISABLE_ERROR_REPORTING;
  if (length != 0 && VALGRIND_CHECK_MEM_IS_ADDRESSABLE(memory, length) == 0) length_ = 0;
}
inline unwatched::~unwatched() {
  if (!is_emulated()) return;
  if (length_ != 0) VALGRIND_MAKE_MEM_NOACCESS(memory_, length_);
  VALGRIND_ENABLE_ERROR_REPORTING;
}
#else
inline unwatched::unwatched(void*, std::size_t) noexcept {}
inline unwatched::~unwatched() {}
#endif

}  // namespace softverbs
