// SPDX-License-Identifier: Apache-2.0
#include "verbs/next_library.hpp"

#include <dlfcn.h>

namespace softverbs {

void* next_symbol(const char* name) noexcept {
  // libibverbs keeps entry points of its first ABI under the same names; dlsym
  // finds the default version, but be explicit for those that have two.
  if (void* found = ::dlvsym(RTLD_NEXT, name, "IBVERBS_1.1")) return found;
  return ::dlsym(RTLD_NEXT, name);
}

}  // namespace softverbs
