// SPDX-License-Identifier: Apache-2.0
#include "support/xrc.hpp"

#include <fcntl.h>

#include <stdexcept>

namespace {

options sending(options wanted) {
  wanted.type = IBV_QPT_XRC_SEND;
  return wanted;
}

}  // namespace

ibv_xrcd* open_domain(ibv_context* verbs, int descriptor, int flags) {
  ibv_xrcd_init_attr asked{};
  asked.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  asked.fd = descriptor;
  asked.oflags = flags;
  return ibv_open_xrcd(verbs, &asked);
}

ibv_qp* create_target(ibv_xrcd* domain) {
  ibv_qp_init_attr_ex asked{};
  asked.qp_type = IBV_QPT_XRC_RECV;
  asked.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  asked.xrcd = domain;
  return ibv_create_qp_ex(domain->context, &asked);
}

std::uint32_t number_of(ibv_srq* queue) {
  std::uint32_t number = 0;
  if (ibv_get_srq_num(queue, &number) != 0) throw std::runtime_error("ibv_get_srq_num failed");
  return number;
}

xrc_sender::xrc_sender(options asked, std::uint64_t operations) : endpoint(sending(asked)) {
  if (operations != 0) build_requests_of(*this, operations);
}

int xrc_sender::send_to(std::uint64_t id, std::uint32_t shared_queue, std::uint32_t length) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.qp_type.xrc.remote_srqn = shared_queue;
  return post(request, {piece(0, length)});
}

xrc_receiver::xrc_receiver(const options& wanted, int descriptor)
    : end(wanted), domain(open_domain(end.context, descriptor, O_CREAT)) {
  if (domain == nullptr) throw std::runtime_error("can't open an XRC domain");
  shared = create_shared();
  target = create_target(domain);
  if (target == nullptr) throw std::runtime_error("can't create an XRC receive queue pair");
}

ibv_qp_open_attr to_open(const ibv_qp* made, ibv_xrcd* domain) {
  ibv_qp_open_attr asked{};
  asked.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  asked.qp_num = made->qp_num;
  asked.xrcd = domain;
  asked.qp_type = IBV_QPT_XRC_RECV;
  return asked;
}

ibv_srq_init_attr_ex to_share(ibv_pd* protection, ibv_xrcd* domain, ibv_cq* queue) {
  ibv_srq_init_attr_ex asked{};
  asked.attr = {4, 1, 0};
  asked.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  asked.srq_type = IBV_SRQT_XRC;
  asked.pd = protection;
  asked.xrcd = domain;
  asked.cq = queue;
  return asked;
}

xrc_receiver::~xrc_receiver() {
  if (target != nullptr) ibv_destroy_qp(target);
  if (shared != nullptr) ibv_destroy_srq(shared);
  if (domain != nullptr) ibv_close_xrcd(domain);
}

address xrc_receiver::here() const {
  address result = end.here();
  result.qpn = target->qp_num;
  return result;
}

ibv_qp_attr xrc_receiver::attributes(const address& peer) const {
  ibv_qp_attr result{};
  result.port_num = end.wanted.port;
  result.qp_access_flags = end.wanted.queue_pair_access;
  result.path_mtu = IBV_MTU_1024;
  result.dest_qp_num = peer.qpn;
  result.rq_psn = peer.psn;
  result.max_dest_rd_atomic = end.wanted.reads;
  result.min_rnr_timer = end.wanted.rnr_timer;
  result.ah_attr = end.address_of(peer);
  result.timeout = end.wanted.timeout;
  return result;
}

int xrc_receiver::connect(const address& peer) const {
  ibv_qp_attr wanted = attributes(peer);
  const auto enter = [&](ibv_qp_state state, int mask) {
    wanted.qp_state = state;
    return ibv_modify_qp(target, &wanted, mask | IBV_QP_STATE);
  };
  if (const int error = enter(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return error;
  if (const int error =
          enter(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return error;
  return enter(IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT);
}

ibv_qp_state xrc_receiver::state() const { return attributes_of(target).qp_state; }

ibv_srq* xrc_receiver::create_shared() const {
  ibv_srq_init_attr_ex asked = to_share(end.domain, domain, end.queue);
  asked.attr = {end.wanted.receive_requests, end.wanted.entries, 0};
  ibv_srq* created = ibv_create_srq_ex(end.context, &asked);
  if (created == nullptr) throw std::runtime_error("can't create an XRC shared receive queue");
  return created;
}

int xrc_receiver::post(ibv_srq* into, std::uint64_t id, std::size_t offset,
                       std::uint32_t length) const {
  ibv_sge piece = end.piece(offset, length);
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(into, &request, &bad);
}

xrc_connection::xrc_connection(const options& wanted, std::uint64_t operations, int descriptor)
    : sender(wanted, operations), receiver(wanted, descriptor) {
  sender.connect(receiver.here());
  if (receiver.connect(sender.here()) != 0) throw std::runtime_error("can't connect");
}
