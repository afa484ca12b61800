// SPDX-License-Identifier: Apache-2.0
// The entry points for what the device doesn't have: refused for our objects,
// handed on for those of other devices.
#include "faults/faults.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>

using namespace softverbs;

SOFTVERBS_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* verbs, ibv_ah_attr* attributes,
                                                 std::uint8_t mac[ETHERNET_LL_SIZE],
                                                 std::uint16_t* vlan) {
  if (!is_soft(verbs))
    return SOFTVERBS_NEXT(ibv_resolve_eth_l2_from_gid)(verbs, attributes, mac, vlan);
  SOFTVERBS_FAULT(ibv_resolve_eth_l2_from_gid, verbs);
  errno = EOPNOTSUPP;
  return -1;
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                                           std::uint64_t iova, int fd, int access) {
  if (!is_soft(domain))
    return SOFTVERBS_NEXT(ibv_reg_dmabuf_mr)(domain, offset, length, iova, fd, access);
  SOFTVERBS_FAULT(ibv_reg_dmabuf_mr, domain->context);
  errno = EOPNOTSUPP;
  return nullptr;
}

SOFTVERBS_EXPORT int ibv_query_qp_data_in_order(ibv_qp* pair, ibv_wr_opcode opcode,
                                                std::uint32_t flags) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_query_qp_data_in_order)(pair, opcode, flags);
  return 0;
}

SOFTVERBS_EXPORT int ibv_set_ece(ibv_qp* pair, ibv_ece* options) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_set_ece)(pair, options);
  SOFTVERBS_FAULT(ibv_set_ece, pair->context);
  if (options->vendor_id == 0) return 0;
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

SOFTVERBS_EXPORT int ibv_query_ece(ibv_qp* pair, ibv_ece* options) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_query_ece)(pair, options);
  SOFTVERBS_FAULT(ibv_query_ece, pair->context);
  *options = {};
  return 0;
}

SOFTVERBS_EXPORT ibv_pd* ibv_import_pd(ibv_context* verbs, std::uint32_t handle) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_import_pd)(verbs, handle);
  SOFTVERBS_FAULT(ibv_import_pd, verbs);
  errno = EOPNOTSUPP;
  return nullptr;
}

SOFTVERBS_EXPORT ibv_mr* ibv_import_mr(ibv_pd* domain, std::uint32_t handle) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_import_mr)(domain, handle);
  SOFTVERBS_FAULT(ibv_import_mr, domain->context);
  errno = EOPNOTSUPP;
  return nullptr;
}

SOFTVERBS_EXPORT ibv_dm* ibv_import_dm(ibv_context* verbs, std::uint32_t handle) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_import_dm)(verbs, handle);
  SOFTVERBS_FAULT(ibv_import_dm, verbs);
  errno = EOPNOTSUPP;
  return nullptr;
}
