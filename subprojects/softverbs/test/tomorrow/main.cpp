// SPDX-License-Identifier: Apache-2.0
// Calls verbs that softverbs doesn't know, on a soft device. Each verb that can fail has to report
// that it isn't supported. The exit code is 0 if all checks pass.
#include "tomorrow/tomorrow.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int failures = 0;

void check(bool is_so, const char* what) {
  if (is_so) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

}  // namespace

int main() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* const context =
      list != nullptr && count > 0 ? ibv_open_device(list[count - 1]) : nullptr;
  ibv_pd* const domain = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  ibv_cq* const queue =
      context != nullptr ? ibv_create_cq(context, 4, nullptr, nullptr, 0) : nullptr;
  if (domain == nullptr || queue == nullptr) {
    std::perror("no soft device");
    return 1;
  }
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = queue;
  attributes.cap = {1, 1, 1, 1, 0};
  ibv_qp* const pair = ibv_create_qp(domain, &attributes);
  alignas(8) char memory[8];
  ibv_mr* const region = ibv_reg_mr(domain, memory, sizeof(memory), 0);
  if (pair == nullptr || region == nullptr) {
    std::perror("no queue pair or no region");
    return 1;
  }
  int value = 0;
  check(ibv_tomorrow_query(context, &value) == EOPNOTSUPP,
        "ibv_tomorrow_query does not return EOPNOTSUPP");
  check(ibv_tomorrow_change(pair) == EOPNOTSUPP, "ibv_tomorrow_change does not return EOPNOTSUPP");
  ibv_tomorrow_release(region);
  // If libibverbs supplies its default operations ("with"), each verb fails with the value that
  // suits its return type. Otherwise, softverbs supplies the operations. It doesn't know their
  // return types, so each of them sets errno to EOPNOTSUPP, and also returns EOPNOTSUPP.
  const char* const with = std::getenv("SOFTVERBS_TOMORROW");
  if (with != nullptr && std::strcmp(with, "with") == 0) {
    errno = 0;
    check(ibv_tomorrow_export(domain) == -1 && errno == EOPNOTSUPP,
          "ibv_tomorrow_export does not return -1 with EOPNOTSUPP in errno");
    errno = 0;
    check(ibv_tomorrow_register(domain) == nullptr && errno == EOPNOTSUPP,
          "ibv_tomorrow_register does not return a null pointer with EOPNOTSUPP in errno");
  } else {
    errno = 0;
    check(ibv_tomorrow_export(domain) != 0 && errno == EOPNOTSUPP,
          "ibv_tomorrow_export does not fail with EOPNOTSUPP in errno");
  }
  check(ibv_dereg_mr(region) == 0 && ibv_destroy_qp(pair) == 0 && ibv_destroy_cq(queue) == 0 &&
            ibv_dealloc_pd(domain) == 0 && ibv_close_device(context) == 0,
        "an object or the context can't be released");
  ibv_free_device_list(list);
  return failures;
}
