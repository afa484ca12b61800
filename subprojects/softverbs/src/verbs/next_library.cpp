// SPDX-License-Identifier: Apache-2.0
#include "verbs/next_library.hpp"

#include <dlfcn.h>

namespace softverbs {

void* next_symbol(const char* name) noexcept {
  // libibverbs keeps entry points of its first ABI under the same names, and dlsym finds the
  // default version. By a version, a library in between that has none, such as softverbs, would not
  // be found.
  return ::dlsym(RTLD_NEXT, name);
}

}  // namespace softverbs
