// SPDX-License-Identifier: Apache-2.0
// The entry points for features that the device doesn't have. Calls with objects of a soft device
// fail, or report that the feature is missing. Calls with objects of other devices are forwarded.
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

SOFTVERBS_EXPORT int ibv_query_qp_data_in_order(ibv_qp* pair, ibv_wr_opcode opcode,
                                                std::uint32_t flags) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_query_qp_data_in_order)(pair, opcode, flags);
  return 0;
}

SOFTVERBS_EXPORT int ibv_set_ece(ibv_qp* pair, ibv_ece* options) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_set_ece)(pair, options);
  SOFTVERBS_FAULT(ibv_set_ece, pair->context);
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

SOFTVERBS_EXPORT int ibv_query_ece(ibv_qp* pair, ibv_ece* options) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_query_ece)(pair, options);
  SOFTVERBS_FAULT(ibv_query_ece, pair->context);
  return EOPNOTSUPP;
}
