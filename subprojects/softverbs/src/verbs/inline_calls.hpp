// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

/// Most of these functions are called by the inline functions of verbs.h, through the tables of a
/// context or a work queue.
namespace softverbs::inline_calls {

int query_port(ibv_context* verbs, std::uint8_t port, ibv_port_attr* attributes, std::size_t size);
int query_device_ex(ibv_context* verbs, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, std::size_t size);

int query_rt_values(ibv_context* verbs, ibv_values_ex* values);

ibv_td* alloc_td(ibv_context* verbs, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* domain);
ibv_pd* alloc_parent_domain(ibv_context* verbs, ibv_parent_domain_init_attr* attributes);

ibv_dm* alloc_dm(ibv_context* verbs, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* memory);
ibv_mr* reg_dm_mr(ibv_pd* domain, ibv_dm* memory, std::uint64_t offset, std::size_t length,
                  unsigned access);

int advise_mr(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);

ibv_flow* create_flow(ibv_qp* pair, ibv_flow_attr* attributes);
int destroy_flow(ibv_flow* flow);

ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type);
int bind_mw(ibv_qp* pair, ibv_mw* window, ibv_mw_bind* binding);
int dealloc_mw(ibv_mw* window);

ibv_cq_ex* create_cq_ex(ibv_context* verbs, ibv_cq_init_attr_ex* attributes);
int poll_cq(ibv_cq* queue, int wanted, ibv_wc* out);
int req_notify_cq(ibv_cq* queue, int solicited_only);

ibv_srq* create_srq_ex(ibv_context* verbs, ibv_srq_init_attr_ex* attributes);
int get_srq_num(ibv_srq* queue, std::uint32_t* number);

ibv_wq* create_wq(ibv_context* verbs, ibv_wq_init_attr* attributes);
int modify_wq(ibv_wq* queue, ibv_wq_attr* attributes);
int destroy_wq(ibv_wq* queue);
int post_wq_recv(ibv_wq* queue, ibv_recv_wr* request, ibv_recv_wr** bad);
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* verbs,
                                        ibv_rwq_ind_table_init_attr* attributes);
int destroy_rwq_ind_table(ibv_rwq_ind_table* table);

ibv_xrcd* open_xrcd(ibv_context* verbs, ibv_xrcd_init_attr* attributes);
int close_xrcd(ibv_xrcd* domain);
ibv_qp* open_qp(ibv_context* verbs, ibv_qp_open_attr* attributes);

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* verbs, ibv_qp_init_attr_ex* attributes);
int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* queue, ibv_recv_wr* request, ibv_recv_wr** bad);

}  // namespace softverbs::inline_calls
