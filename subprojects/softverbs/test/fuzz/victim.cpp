// SPDX-License-Identifier: Apache-2.0
#include "victim.hpp"

#include "wire/wire.hpp"
#include <softverbs/softverbs.h>

#include <sys/mman.h>

#include <array>
#include <cstring>

namespace fuzz {
namespace {

constexpr std::size_t page = 4096;
constexpr unsigned char untouched = 0xc5;
constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;

constexpr int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

device& device::only() {
  static device made;
  return made;
}

device::device() {
  // Pages that aren't there, one that isn't registered, those that are, and the same again.
  void* start = ::mmap(nullptr, 8 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(start != MAP_FAILED);
  all_ = {static_cast<std::byte*>(start) + page, 6 * page};
  require(::mprotect(all_.data(), all_.size(), PROT_READ | PROT_WRITE) == 0);
  memory_ = all_.subspan(page, 4 * page);
  ibv_device** list = ibv_get_device_list(nullptr);
  require(list != nullptr && list[0] != nullptr);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  require(context != nullptr);
  domain = ibv_alloc_pd(context);
  queue = ibv_create_cq(context, 256, nullptr, nullptr, 0);
  region = ibv_reg_mr(domain, memory_.data(), memory_.size(), static_cast<unsigned>(all_rights));
  require(domain != nullptr && queue != nullptr && region != nullptr);
  ibv_qp_init_attr initial{};
  initial.send_cq = initial.recv_cq = queue;
  initial.qp_type = IBV_QPT_UD;
  initial.cap = {1, 1, 1, 1, 0};
  ibv_qp* const some = ibv_create_qp(domain, &initial);
  require(some != nullptr);
  slot_ = some->qp_num >> softverbs::wire::index_bits;
  require(ibv_destroy_qp(some) == 0);
}

std::uint32_t device::slot() const noexcept { return slot_; }

void device::begin() {
  std::memset(all_.data(), untouched, all_.size());
  std::memset(memory_.data(), 0x11, memory_.size());
}

void device::begin_steps(std::uint64_t seed) {
  begin();
  softverbs_hold(seed);
}

void device::check() const {
  static const auto before = [] {
    std::array<unsigned char, page> bytes;
    bytes.fill(untouched);
    return bytes;
  }();
  require(std::memcmp(all_.data(), before.data(), page) == 0 &&
          std::memcmp(all_.last(page).data(), before.data(), page) == 0);
}

void device::run(unsigned steps) {
  while (steps > 0 && softverbs_step() != 0) --steps;
}

ibv_sge device::piece(std::size_t offset, std::uint32_t length) const noexcept {
  return {reinterpret_cast<std::uintptr_t>(memory_.data()) + offset, length, region->lkey};
}

ibv_ah_attr device::way_here() const {
  constexpr std::uint8_t gid_index = 3;
  ibv_ah_attr way{};
  ibv_port_attr port{};
  require(ibv_query_port(context, 1, &port) == 0);
  way.port_num = 1;
  way.dlid = port.lid;
  way.is_global = 1;
  way.grh.sgid_index = gid_index;
  way.grh.hop_limit = 64;
  require(ibv_query_gid(context, 1, gid_index, &way.grh.dgid) == 0);
  return way;
}

victim::victim(ibv_qp_type type, std::uint32_t peer, bool shares_receives) : type_(type) {
  const device& on = device::only();
  if (shares_receives) {
    ibv_srq_init_attr receives{};
    receives.attr = {8, 2, 0};
    shared_ = ibv_create_srq(on.domain, &receives);
    require(shared_ != nullptr);
  }
  ibv_qp_init_attr initial{};
  initial.send_cq = initial.recv_cq = on.queue;
  initial.qp_type = type;
  initial.srq = shared_;
  initial.sq_sig_all = 1;
  initial.cap = {16, 8, 2, 2, 64};
  pair = ibv_create_qp(on.domain, &initial);
  require(pair != nullptr);

  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.port_num = 1;
  wanted.qp_access_flags = static_cast<unsigned>(all_rights);
  wanted.qkey = qkey;
  const bool connected = type != IBV_QPT_UD;
  require(ibv_modify_qp(pair, &wanted,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                            (connected ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)) == 0);
  wanted.qp_state = IBV_QPS_RTR;
  wanted.path_mtu = IBV_MTU_1024;
  wanted.dest_qp_num = peer;
  wanted.rq_psn = peer_psn;
  wanted.max_dest_rd_atomic = 16;
  wanted.min_rnr_timer = 1;
  wanted.ah_attr = on.way_here();
  int mask = IBV_QP_STATE;
  if (connected) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  require(ibv_modify_qp(pair, &wanted, mask) == 0);
  wanted.qp_state = IBV_QPS_RTS;
  wanted.sq_psn = psn;
  wanted.timeout = 1;
  wanted.retry_cnt = 1;
  wanted.rnr_retry = 1;
  wanted.max_rd_atomic = 16;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  require(ibv_modify_qp(pair, &wanted, mask) == 0);
}

victim::~victim() {
  poll();
  require(ibv_destroy_qp(pair) == 0);
  if (shared_ != nullptr) require(ibv_destroy_srq(shared_) == 0);
}

void victim::post_receive(std::size_t offset, std::uint32_t length) {
  ibv_sge piece = device::only().piece(offset, length);
  ibv_recv_wr request{};
  request.wr_id = receive_bit | length;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = shared_ == nullptr ? ibv_post_recv(pair, &request, &bad)
                                       : ibv_post_srq_recv(shared_, &request, &bad);
  if (error == 0) ++receives_;
}

void victim::post(ibv_wr_opcode what, const ibv_sge& piece, std::uint64_t remote,
                  std::uint32_t rkey) {
  ibv_sge entry = piece;
  ibv_send_wr request{};
  request.wr_id = piece.length;
  request.opcode = what;
  request.sg_list = &entry;
  request.num_sge = 1;
  if (what == IBV_WR_ATOMIC_CMP_AND_SWP || what == IBV_WR_ATOMIC_FETCH_AND_ADD)
    request.wr.atomic = {remote, 1, 2, rkey};
  else
    request.wr.rdma = {remote, rkey};
  if (type_ == IBV_QPT_UD) {
    ibv_ah_attr way = device::only().way_here();
    ibv_ah* handle = ibv_create_ah(device::only().domain, &way);
    require(handle != nullptr);
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {handle, pair->qp_num, qkey};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(pair, &request, &bad) == 0) ++posted_;
    require(ibv_destroy_ah(handle) == 0);
    return;
  }
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(pair, &request, &bad) == 0) ++posted_;
}

void victim::poll() {
  std::array<ibv_wc, 16> completions{};
  for (int count = 1; count > 0;) {
    count =
        ibv_poll_cq(device::only().queue, static_cast<int>(completions.size()), completions.data());
    require(count >= 0);
    for (const ibv_wc& each : std::span(completions).first(static_cast<std::size_t>(count))) {
      const bool received = (each.wr_id & receive_bit) != 0;
      unsigned& left = received ? receives_ : posted_;
      require(left > 0);
      --left;
      require(!received || each.status != IBV_WC_SUCCESS || each.opcode != IBV_WC_RECV ||
              each.byte_len <= (each.wr_id & ~receive_bit));
    }
  }
}

}  // namespace fuzz
