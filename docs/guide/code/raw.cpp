// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C side of docs/guide/from-libibverbs.md. It is compiled, not run.

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace guide::raw {

ibv_context* open_first() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) return nullptr;
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  return context;
}

ibv_mr* register_buffer(ibv_pd* domain, void* buffer, std::size_t length) {
  return ibv_reg_mr(domain, buffer, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

ibv_qp* create(ibv_pd* domain, ibv_cq* queue) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = queue;
  wanted.recv_cq = queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = 16;
  wanted.cap.max_recv_wr = 16;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  ibv_qp* pair = ibv_create_qp(domain, &wanted);
  if (pair == nullptr) return nullptr;

  ibv_qp_attr to_init{};
  to_init.qp_state = IBV_QPS_INIT;
  to_init.port_num = 1;
  to_init.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  if (ibv_modify_qp(pair, &to_init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0)
    return pair;
  ibv_destroy_qp(pair);
  return nullptr;
}

int connect(ibv_qp* pair, std::uint32_t number, std::uint32_t psn, const ibv_gid& gid) {
  ibv_qp_attr to_rtr{};
  to_rtr.qp_state = IBV_QPS_RTR;
  to_rtr.path_mtu = IBV_MTU_1024;
  to_rtr.dest_qp_num = number;
  to_rtr.rq_psn = psn;
  to_rtr.max_dest_rd_atomic = 1;
  to_rtr.min_rnr_timer = 12;
  to_rtr.ah_attr.is_global = 1;
  to_rtr.ah_attr.grh.dgid = gid;
  to_rtr.ah_attr.grh.sgid_index = 3;
  to_rtr.ah_attr.grh.hop_limit = 64;
  to_rtr.ah_attr.port_num = 1;
  if (const int failed =
          ibv_modify_qp(pair, &to_rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return failed;

  ibv_qp_attr to_rts{};
  to_rts.qp_state = IBV_QPS_RTS;
  to_rts.sq_psn = psn;
  to_rts.timeout = 14;
  to_rts.retry_cnt = 7;
  to_rts.rnr_retry = 7;
  to_rts.max_rd_atomic = 1;
  return ibv_modify_qp(pair, &to_rts,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int read(ibv_qp* pair, ibv_mr* to, std::uint64_t address, std::uint32_t rkey) {
  ibv_sge element{};
  element.addr = reinterpret_cast<std::uintptr_t>(to->addr);
  element.length = static_cast<std::uint32_t>(to->length);
  element.lkey = to->lkey;
  ibv_send_wr request{};
  request.wr_id = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &element;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = rkey;
  ibv_send_wr* rejected = nullptr;
  return ibv_post_send(pair, &request, &rejected);
}

int wait(ibv_cq* queue) {
  ibv_wc done{};
  int count = 0;
  while ((count = ibv_poll_cq(queue, 1, &done)) == 0) {
  }
  if (count < 0) return EIO;
  return done.status == IBV_WC_SUCCESS ? 0 : EIO;
}

}  // namespace guide::raw
