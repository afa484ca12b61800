// SPDX-License-Identifier: Apache-2.0
#include "verbs/next_library.hpp"

#include <dlfcn.h>

namespace softverbs {

void* next_symbol(const char* name) noexcept {
  // dlsym returns the default version; libibverbs also has entry points of its first ABI under the
  // same names. Requesting a version would skip libraries in between that have none, such as
  // softverbs.
  return ::dlsym(RTLD_NEXT, name);
}

}  // namespace softverbs
