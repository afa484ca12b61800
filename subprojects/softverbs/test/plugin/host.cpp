// SPDX-License-Identifier: Apache-2.0
// Loads a plugin, and runs it. $1: the plugin. The program itself is linked with
// softverbs, but not with libibverbs.
#include <softverbs/softverbs.h>

#include <dlfcn.h>

#include <cstdio>

int main(int count, char** arguments) {
  std::printf("softverbs %s\n", softverbs_version());
  void* const plugin = count > 1 ? ::dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  auto* const run =
      plugin != nullptr ? reinterpret_cast<int (*)()>(::dlsym(plugin, "run")) : nullptr;
  if (run == nullptr) {
    std::puts("FAILED: no plugin");
    return 1;
  }
  return run();
}
