// SPDX-License-Identifier: Apache-2.0
// Uses libibverbs, with which the program that loads this plugin is not linked.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>

extern "C" __attribute__((visibility("default"))) int run() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) {
    std::puts("FAILED: no soft device");
    return 1;
  }
  ibv_free_device_list(list);
  // softverbs forwards descriptors that don't belong to its devices to libibverbs, which fails with
  // EINVAL for this one.
  errno = 0;
  if (ibv_import_device(-1) != nullptr || errno != EINVAL) {
    std::perror("FAILED: ibv_import_device(-1) did not reach libibverbs");
    return 1;
  }
  return 0;
}
