// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace verbspp::detail {

/// True if the process is known to have a single thread, so that nothing has to be atomic. glibc
/// has reported this since version 2.32. With older versions and other C libraries, the result is
/// always false.
[[nodiscard]] inline bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

}  // namespace verbspp::detail
