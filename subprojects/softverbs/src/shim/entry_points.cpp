// SPDX-License-Identifier: Apache-2.0
// The verbs for which this library does little more than inject failures.
#include "faults/failing_verbs.hpp"
#include "shim/shim.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace softverbs;
using namespace softverbs::shim;

SOFTVERBS_EXPORT int ibv_query_device(ibv_context* verbs, ibv_device_attr* attributes) {
  SHIM_FAULT(ibv_query_device, verbs);
  return SOFTVERBS_NEXT(ibv_query_device)(verbs, attributes);
}

SOFTVERBS_EXPORT int _ibv_query_gid_ex(ibv_context* verbs, std::uint32_t port, std::uint32_t index,
                                       ibv_gid_entry* entry, std::uint32_t flags,
                                       std::size_t size) {
  SHIM_FAULT(ibv_query_gid_ex, verbs);
  return SOFTVERBS_NEXT(_ibv_query_gid_ex)(verbs, port, index, entry, flags, size);
}

SOFTVERBS_EXPORT ssize_t _ibv_query_gid_table(ibv_context* verbs, ibv_gid_entry* entries,
                                              std::size_t most, std::uint32_t flags,
                                              std::size_t size) {
  SHIM_FAULT(ibv_query_gid_table, verbs);
  return SOFTVERBS_NEXT(_ibv_query_gid_table)(verbs, entries, most, flags, size);
}

SOFTVERBS_EXPORT int ibv_query_gid(ibv_context* verbs, std::uint8_t port, int index, ibv_gid* gid) {
  SHIM_FAULT(ibv_query_gid, verbs);
  return SOFTVERBS_NEXT(ibv_query_gid)(verbs, port, index, gid);
}

// This function is not public, but rdma-core's own programs use it.
SOFTVERBS_EXPORT int ibv_query_gid_type(ibv_context* verbs, std::uint8_t port, unsigned index,
                                        int* type);
int ibv_query_gid_type(ibv_context* verbs, std::uint8_t port, unsigned index, int* type) {
  SHIM_FAULT(ibv_query_gid_type, verbs);
  return SOFTVERBS_NEXT(ibv_query_gid_type)(verbs, port, index, type);
}

SOFTVERBS_EXPORT int ibv_query_pkey(ibv_context* verbs, std::uint8_t port, int index,
                                    __be16* pkey) {
  SHIM_FAULT(ibv_query_pkey, verbs);
  return SOFTVERBS_NEXT(ibv_query_pkey)(verbs, port, index, pkey);
}

SOFTVERBS_EXPORT int ibv_get_pkey_index(ibv_context* verbs, std::uint8_t port, __be16 pkey) {
  SHIM_FAULT(ibv_get_pkey_index, verbs);
  return SOFTVERBS_NEXT(ibv_get_pkey_index)(verbs, port, pkey);
}

SOFTVERBS_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* verbs, ibv_ah_attr* attributes,
                                                 std::uint8_t mac[ETHERNET_LL_SIZE],
                                                 std::uint16_t* vlan) {
  SHIM_FAULT(ibv_resolve_eth_l2_from_gid, verbs);
  return SOFTVERBS_NEXT(ibv_resolve_eth_l2_from_gid)(verbs, attributes, mac, vlan);
}

SOFTVERBS_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* verbs) {
  SHIM_FAULT(ibv_alloc_pd, verbs);
  return SOFTVERBS_NEXT(ibv_alloc_pd)(verbs);
}

SOFTVERBS_EXPORT int ibv_dealloc_pd(ibv_pd* domain) {
  SHIM_FAULT(ibv_dealloc_pd, domain->context);
  return SOFTVERBS_NEXT(ibv_dealloc_pd)(domain);
}

SOFTVERBS_EXPORT ibv_pd* ibv_import_pd(ibv_context* verbs, std::uint32_t handle) {
  SHIM_FAULT(ibv_import_pd, verbs);
  return SOFTVERBS_NEXT(ibv_import_pd)(verbs, handle);
}

SOFTVERBS_EXPORT ibv_mr* ibv_import_mr(ibv_pd* domain, std::uint32_t handle) {
  SHIM_FAULT(ibv_import_mr, domain->context);
  return SOFTVERBS_NEXT(ibv_import_mr)(domain, handle);
}

SOFTVERBS_EXPORT ibv_dm* ibv_import_dm(ibv_context* verbs, std::uint32_t handle) {
  SHIM_FAULT(ibv_import_dm, verbs);
  ibv_dm* const memory = SOFTVERBS_NEXT(ibv_import_dm)(verbs, handle);
  attend_to(memory);
  return memory;
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int access) {
  SHIM_FAULT(ibv_reg_mr, domain->context);
  return SOFTVERBS_NEXT(ibv_reg_mr)(domain, address, length, access);
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, std::size_t length,
                                         std::uint64_t iova, int access) {
  SHIM_FAULT(ibv_reg_mr_iova, domain->context);
  return SOFTVERBS_NEXT(ibv_reg_mr_iova)(domain, address, length, iova, access);
}

// verbs.h calls this for ibv_reg_mr and ibv_reg_mr_iova if the access rights include an optional
// right, or aren't known at compile time.
SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t length,
                                          std::uint64_t iova, unsigned access) {
  const bool is_plain = iova == reinterpret_cast<std::uintptr_t>(address);
  const entry here;
  if (const auto failure = here.strike(
          is_plain ? faults::number_of("ibv_reg_mr") : faults::number_of("ibv_reg_mr_iova"),
          domain->context))
    return *failure;
  return SOFTVERBS_NEXT(ibv_reg_mr_iova2)(domain, address, length, iova, access);
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                                           std::uint64_t iova, int fd, int access) {
  SHIM_FAULT(ibv_reg_dmabuf_mr, domain->context);
  return SOFTVERBS_NEXT(ibv_reg_dmabuf_mr)(domain, offset, length, iova, fd, access);
}

SOFTVERBS_EXPORT int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* domain, void* address,
                                  std::size_t length, int access) {
  SHIM_FAULT(ibv_rereg_mr, region->context);
  return SOFTVERBS_NEXT(ibv_rereg_mr)(region, flags, domain, address, length, access);
}

SOFTVERBS_EXPORT int ibv_dereg_mr(ibv_mr* region) {
  SHIM_FAULT(ibv_dereg_mr, region->context);
  return SOFTVERBS_NEXT(ibv_dereg_mr)(region);
}

SOFTVERBS_EXPORT ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  SHIM_FAULT(ibv_create_srq, domain->context);
  const own_descriptor shown(domain->context);
  return SOFTVERBS_NEXT(ibv_create_srq)(domain, attributes);
}

SOFTVERBS_EXPORT int ibv_modify_srq(ibv_srq* queue, ibv_srq_attr* attributes, int mask) {
  SHIM_FAULT(ibv_modify_srq, queue->context);
  return SOFTVERBS_NEXT(ibv_modify_srq)(queue, attributes, mask);
}

SOFTVERBS_EXPORT int ibv_query_srq(ibv_srq* queue, ibv_srq_attr* attributes) {
  SHIM_FAULT(ibv_query_srq, queue->context);
  return SOFTVERBS_NEXT(ibv_query_srq)(queue, attributes);
}

SOFTVERBS_EXPORT int ibv_destroy_srq(ibv_srq* queue) {
  SHIM_FAULT(ibv_destroy_srq, queue->context);
  return SOFTVERBS_NEXT(ibv_destroy_srq)(queue);
}

SOFTVERBS_EXPORT int ibv_query_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask,
                                  ibv_qp_init_attr* initial) {
  SHIM_FAULT(ibv_query_qp, pair->context);
  return SOFTVERBS_NEXT(ibv_query_qp)(pair, attributes, mask, initial);
}

SOFTVERBS_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) {
  SHIM_FAULT(ibv_qp_to_qp_ex, nullptr);
  return SOFTVERBS_NEXT(ibv_qp_to_qp_ex)(pair);
}

SOFTVERBS_EXPORT int ibv_query_ece(ibv_qp* pair, ibv_ece* options) {
  SHIM_FAULT(ibv_query_ece, pair->context);
  return SOFTVERBS_NEXT(ibv_query_ece)(pair, options);
}

SOFTVERBS_EXPORT int ibv_set_ece(ibv_qp* pair, ibv_ece* options) {
  SHIM_FAULT(ibv_set_ece, pair->context);
  return SOFTVERBS_NEXT(ibv_set_ece)(pair, options);
}

SOFTVERBS_EXPORT ibv_ah* ibv_create_ah(ibv_pd* domain, ibv_ah_attr* attributes) {
  SHIM_FAULT(ibv_create_ah, domain->context);
  return SOFTVERBS_NEXT(ibv_create_ah)(domain, attributes);
}

SOFTVERBS_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* domain, ibv_wc* completion, ibv_grh* header,
                                               std::uint8_t port) {
  SHIM_FAULT(ibv_create_ah_from_wc, domain->context);
  return SOFTVERBS_NEXT(ibv_create_ah_from_wc)(domain, completion, header, port);
}

SOFTVERBS_EXPORT int ibv_init_ah_from_wc(ibv_context* verbs, std::uint8_t port, ibv_wc* completion,
                                         ibv_grh* header, ibv_ah_attr* attributes) {
  SHIM_FAULT(ibv_init_ah_from_wc, verbs);
  return SOFTVERBS_NEXT(ibv_init_ah_from_wc)(verbs, port, completion, header, attributes);
}

SOFTVERBS_EXPORT int ibv_destroy_ah(ibv_ah* handle) {
  SHIM_FAULT(ibv_destroy_ah, handle->context);
  return SOFTVERBS_NEXT(ibv_destroy_ah)(handle);
}

SOFTVERBS_EXPORT int ibv_attach_mcast(ibv_qp* pair, const ibv_gid* group, std::uint16_t lid) {
  SHIM_FAULT(ibv_attach_mcast, pair->context);
  return SOFTVERBS_NEXT(ibv_attach_mcast)(pair, group, lid);
}

SOFTVERBS_EXPORT int ibv_detach_mcast(ibv_qp* pair, const ibv_gid* group, std::uint16_t lid) {
  SHIM_FAULT(ibv_detach_mcast, pair->context);
  return SOFTVERBS_NEXT(ibv_detach_mcast)(pair, group, lid);
}
