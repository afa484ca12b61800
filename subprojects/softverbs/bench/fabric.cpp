// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"

#include "measurement.hpp"

#include <cerrno>
#include <cstring>

namespace bench {
namespace {

constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// Checks the result of a verb that returns an errno value.
void check_errno(int error, const char* what) {
  errno = error;
  check(error == 0, what);
}

}  // namespace

device::device(std::size_t bytes) : memory_(bytes) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  check(list != nullptr, "ibv_get_device_list");
  for (int at = 0; at < count && context_ == nullptr; ++at)
    if (std::strncmp(ibv_get_device_name(list[at]), "soft", 4) == 0)
      context_ = ibv_open_device(list[at]);
  ibv_free_device_list(list);
  check(context_ != nullptr, "open a device named soft* (preload libsoftverbs)");
  domain_ = ibv_alloc_pd(context_);
  check(domain_ != nullptr, "ibv_alloc_pd");
  region_ = ibv_reg_mr(domain_, memory_.data(), bytes, access);
  check(region_ != nullptr, "ibv_reg_mr");
  check(ibv_query_port(context_, 1, &port_) == 0, "ibv_query_port");
  check(ibv_query_gid(context_, 1, 0, &gid_) == 0, "ibv_query_gid");
}

device::~device() {
  ibv_dereg_mr(region_);
  ibv_dealloc_pd(domain_);
  ibv_close_device(context_);
}

ibv_sge device::piece(std::size_t offset, std::size_t length) const noexcept {
  return {reinterpret_cast<std::uintptr_t>(memory_.data()) + offset,
          static_cast<std::uint32_t>(length), region_->lkey};
}

address device::address_of(const ibv_qp& pair) const noexcept {
  return {pair.qp_num, region_->rkey, reinterpret_cast<std::uintptr_t>(memory_.data()), gid_,
          port_.lid};
}

completion_queue::completion_queue(const device& on, int entries)
    : queue(ibv_create_cq(on.context(), entries, nullptr, nullptr, 0)) {
  check(queue != nullptr, "ibv_create_cq");
}

int completion_queue::poll(ibv_wc* into, int count) {
  const int given = ibv_poll_cq(queue, count, into);
  check(given >= 0, "ibv_poll_cq");
  for (int at = 0; at < given; ++at)
    check(into[at].status == IBV_WC_SUCCESS, ibv_wc_status_str(into[at].status));
  return given;
}

ibv_wc completion_queue::wait() {
  ibv_wc result{};
  while (poll(&result, 1) == 0) continue;
  return result;
}

queue_pair::queue_pair(const device& on, completion_queue& completions, std::uint32_t sends,
                       std::uint32_t receives)
    : on_(on) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions.queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {sends, receives, 1, 1, 64};
  pair_ = ibv_create_qp(on.domain(), &wanted);
  check(pair_ != nullptr, "ibv_create_qp");
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = access;
  check_errno(ibv_modify_qp(pair_, &to,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "ibv_modify_qp to INIT");
}

void queue_pair::destroy() noexcept {
  if (pair_ != nullptr) ibv_destroy_qp(pair_);
  pair_ = nullptr;
}

void queue_pair::connect(const address& peer) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_4096;
  to.dest_qp_num = peer.qpn;
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = 12;
  to.ah_attr.port_num = 1;
  to.ah_attr.dlid = peer.lid;
  to.ah_attr.is_global = on_.port_.link_layer == IBV_LINK_LAYER_ETHERNET;
  to.ah_attr.grh.dgid = peer.gid;
  to.ah_attr.grh.hop_limit = 64;
  check_errno(ibv_modify_qp(pair_, &to,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "ibv_modify_qp to RTR");
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 18;
  to.retry_cnt = to.rnr_retry = 7;
  to.max_rd_atomic = 1;
  check_errno(ibv_modify_qp(pair_, &to,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              "ibv_modify_qp to RTS");
}

address queue_pair::meet(int socket) {
  const address own = here();
  put(socket, &own, sizeof(own));
  address peer{};
  get(socket, &peer, sizeof(peer));
  connect(peer);
  // Neither end continues before both are connected.
  char ready = 0;
  put(socket, &ready, 1);
  get(socket, &ready, 1);
  return peer;
}

void queue_pair::post(ibv_send_wr& request, const ibv_sge& piece, unsigned flags) {
  request.sg_list = const_cast<ibv_sge*>(&piece);
  request.num_sge = 1;
  request.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  check_errno(ibv_post_send(pair_, &request, &bad), "ibv_post_send");
}

void queue_pair::write(const ibv_sge& piece, const address& to, unsigned flags, std::uint64_t id) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {to.memory + (piece.addr - on_.piece(0, 0).addr), to.rkey};
  post(request, piece, flags);
}

void queue_pair::send(const ibv_sge& piece, unsigned flags) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  post(request, piece, flags);
}

void queue_pair::receive(const ibv_sge& piece, std::uint64_t id) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = const_cast<ibv_sge*>(&piece);
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  check_errno(ibv_post_recv(pair_, &request, &bad), "ibv_post_recv");
}

}  // namespace bench
