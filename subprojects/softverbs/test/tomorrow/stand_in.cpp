// SPDX-License-Identifier: Apache-2.0
// Defines the new verbs of a simulated future libibverbs. Unless `SOFTVERBS_TOMORROW=with` is set,
// its function that creates contexts for drivers fails, as if libibverbs had renamed that function.
#include "tomorrow/tomorrow.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/// The table that holds the operations of the new verbs, with other operations before and between
/// them. No release has this layout.
struct verbs_ex_private {
  std::uint64_t bits[5];
  void (*others_before[90])();
  int (*change)(ibv_qp* pair);
  int (*export_descriptor)(ibv_pd* domain);
  void (*others_between[40])();
  int (*query)(ibv_context* context, int* value);
  ibv_mr* (*register_memory)(ibv_pd* domain);
  void (*release)(ibv_mr* region);
};

namespace {

/// The context of a driver. New members come first, so the older ones keep their distance from the
/// end: rdma-core 59 has 3 members that rdma-core 44 lacks, and rdma-core 64 has 6.
struct newer_context {
  void (*newer[20])();
  verbs_context older;
};

verbs_ex_private& table_of(ibv_context* context) { return *verbs_get_ctx(context)->priv; }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int ibv_tomorrow_query(ibv_context* context, int* value) {
  return table_of(context).query(context, value);
}
EXPORTED int ibv_tomorrow_export(ibv_pd* domain) {
  return table_of(domain->context).export_descriptor(domain);
}
EXPORTED ibv_mr* ibv_tomorrow_register(ibv_pd* domain) {
  return table_of(domain->context).register_memory(domain);
}
EXPORTED void ibv_tomorrow_release(ibv_mr* region) { table_of(region->context).release(region); }
EXPORTED int ibv_tomorrow_change(ibv_qp* pair) { return table_of(pair->context).change(pair); }

EXPORTED void* _verbs_init_and_alloc_context(ibv_device* device, int, std::size_t size,
                                             verbs_context* offset, std::uint32_t);
void* _verbs_init_and_alloc_context(ibv_device* device, int, std::size_t size,
                                    verbs_context* offset, std::uint32_t) {
  const char* const with = std::getenv("SOFTVERBS_TOMORROW");
  if (with == nullptr || std::strcmp(with, "with") != 0) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(offset);
  // libibverbs doesn't check this, and would write beyond the end of the memory.
  if (size < begin + sizeof(newer_context)) {
    std::fputs("FAILED: the context is longer than the memory that was asked for\n", stderr);
    std::abort();
  }
  void* const made = std::calloc(1, size);
  auto* const context = reinterpret_cast<newer_context*>(static_cast<char*>(made) + begin);
  auto* const table = static_cast<verbs_ex_private*>(std::calloc(1, sizeof(verbs_ex_private)));
  table->change = [](ibv_qp*) { return EOPNOTSUPP; };
  table->export_descriptor = [](ibv_pd*) {
    errno = EOPNOTSUPP;
    return -1;
  };
  table->query = [](ibv_context*, int*) { return EOPNOTSUPP; };
  table->register_memory = [](ibv_pd*) -> ibv_mr* {
    errno = EOPNOTSUPP;
    return nullptr;
  };
  table->release = [](ibv_mr*) {};
  for (auto& operation : context->newer) operation = [] {};
  context->older.priv = table;
  context->older.sz = sizeof(newer_context);
  context->older.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->older.context.device = device;
  return made;
}
