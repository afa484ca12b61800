// SPDX-License-Identifier: Apache-2.0
#include "verbs/next_library.hpp"

#include <dlfcn.h>

#include <initializer_list>

namespace softverbs {

void* next_symbol(const char* name) noexcept {
  // dlsym returns the default version; libibverbs also has entry points of its first ABI under the
  // same names. Requesting a version would skip libraries in between whose symbols have no
  // versions, such as softverbs.
  if (void* const found = ::dlsym(RTLD_NEXT, name)) return found;
  // If only a plugin, such as a Python module, is linked with libibverbs, libibverbs isn't in the
  // global scope, so RTLD_NEXT doesn't find it. Callers may keep the addresses of the library's
  // functions, so the library must not be unloaded.
  for (const char* const library : {"libibverbs.so.1", "librdmacm.so.1"}) {
    void* const loaded = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (loaded == nullptr) continue;
    void* const found = ::dlsym(loaded, name);
    ::dlclose(loaded);
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace softverbs
