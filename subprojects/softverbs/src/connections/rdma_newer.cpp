// SPDX-License-Identifier: Apache-2.0
// The entry points of RDMACM_1.4. They fail if the process has soft devices, because librdmacm's
// own functions would treat the identifiers of softverbs as their own. They are defined by symbol
// name, because older headers don't declare them.
#include "connections/calls.hpp"

#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>

using namespace softverbs;

SOFTVERBS_EXPORT int softverbs_resolve_addrinfo(
    rdma_cm_id* id, const char* node, const char* service,
    const rdma_addrinfo* hints) __asm__("rdma_resolve_addrinfo");
SOFTVERBS_EXPORT int softverbs_query_addrinfo(rdma_cm_id* id,
                                              rdma_addrinfo** found) __asm__("rdma_query_addrinfo");
SOFTVERBS_EXPORT int softverbs_write_cm_event(
    rdma_cm_id* id, rdma_cm_event_type event, int status,
    std::uint64_t argument) __asm__("rdma_write_cm_event");

int softverbs_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                               const rdma_addrinfo* hints) {
  if (!serves_connections())
    return pass_on(&softverbs_resolve_addrinfo, "rdma_resolve_addrinfo", id, node, service, hints);
  return outcome(EOPNOTSUPP);
}

int softverbs_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** found) {
  if (!serves_connections())
    return pass_on(&softverbs_query_addrinfo, "rdma_query_addrinfo", id, found);
  return outcome(EOPNOTSUPP);
}

int softverbs_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status,
                             std::uint64_t argument) {
  if (!serves_connections())
    return pass_on(&softverbs_write_cm_event, "rdma_write_cm_event", id, event, status, argument);
  return outcome(EOPNOTSUPP);
}
