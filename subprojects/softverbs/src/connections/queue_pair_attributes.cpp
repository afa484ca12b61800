// SPDX-License-Identifier: Apache-2.0
// The attributes of an identifier's queue pair.
#include "connections/identifier.hpp"
#include "connections/protocol.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>

namespace softverbs {

int identifier::queue_pair_attributes(ibv_qp_attr& attributes, int& mask) {
  if (!here_) return EINVAL;
  const ibv_qp_state to = attributes.qp_state;
  const bool is_known = stage_ == stage::asked || stage_ == stage::answered ||
                        stage_ == stage::answering || stage_ == stage::connected;
  const auto write_path = [&] {
    ibv_ah_attr& path = attributes.ah_attr;
    path = {};
    path.port_num = here_->port;
    path.is_global = here_->is_ethernet() ? 1 : 0;
    path.grh.dgid = there_->gid;
    path.grh.sgid_index = here_->gid_index;
    path.grh.hop_limit = hops;
    path.grh.traffic_class = options_.type_of_service;
    if (!here_->is_ethernet()) path.dlid = lid_of(station_of(there_->device, there_->port));
  };
  attributes.pkey_index = 0;
  attributes.port_num = here_->port;
  if (is_datagram()) {
    attributes.qkey = RDMA_UDP_QKEY;
    if (there_) write_path();
    mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    return 0;
  }
  const bool responds = qp_type == IBV_QPT_RC || qp_type == IBV_QPT_XRC_RECV;
  const bool requests = qp_type == IBV_QPT_RC || qp_type == IBV_QPT_XRC_SEND;
  switch (to) {
    case IBV_QPS_INIT:
      attributes.qp_access_flags = 0;
      if (is_known) {
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (agreed_.responder_resources != 0)
          attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      }
      mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      return 0;
    case IBV_QPS_RTR:
      if (!is_known || peer_has_gone()) return EINVAL;
      write_path();
      attributes.path_mtu = std::min(here_->description().mtu, there_->description().mtu);
      attributes.dest_qp_num = agreed_.queue_pair;
      attributes.rq_psn = agreed_.psn;
      attributes.max_dest_rd_atomic = agreed_.responder_resources;
      attributes.min_rnr_timer = 0;
      mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (responds) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      return 0;
    case IBV_QPS_RTS:
      if (!is_known) return EINVAL;
      attributes.sq_psn = agreed_.own_psn;
      attributes.timeout =
          options_.has_acknowledgement_timeout ? options_.acknowledgement_timeout : usual_timeout;
      attributes.retry_cnt = agreed_.retries;
      attributes.rnr_retry = agreed_.rnr_retries;
      attributes.max_rd_atomic = agreed_.initiator_depth;
      mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
      if (responds || requests) mask |= IBV_QP_TIMEOUT;
      if (requests) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      return 0;
    default:
      return EINVAL;
  }
}

}  // namespace softverbs
