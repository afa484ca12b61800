// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace verbspp::detail {

/// Whether the process is known to have one thread, so that nothing has to be atomic: the C library
/// tells where it is new enough (glibc 2.32).
[[nodiscard]] inline bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

}  // namespace verbspp::detail
