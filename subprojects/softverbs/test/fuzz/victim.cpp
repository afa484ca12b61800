// SPDX-License-Identifier: Apache-2.0
#include "victim.hpp"

#include "base/newer_verbs.hpp"
#include "frame.hpp"
#include "wire/packet.hpp"
#include "wire/wire.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace fuzz {
namespace {

constexpr std::size_t page = 4096;
/// The region has room for a message of two packets.
constexpr std::size_t registered = 2 * softverbs::packet_bytes;
constexpr unsigned char untouched = 0xc5;
constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;

constexpr unsigned all_rights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
    IBV_ACCESS_REMOTE_ATOMIC |
    softverbs::newer::access_to_flush(softverbs::newer::flush_global |
                                      softverbs::newer::flush_persistent);

ibv_srq* make_shared() {
  const device& on = device::only();
  ibv_srq_init_attr_ex asked{};
  asked.attr = {8, 2, 0};
  asked.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  asked.srq_type = IBV_SRQT_XRC;
  asked.pd = on.domain;
  asked.xrcd = on.shared_receives;
  asked.cq = on.queue;
  ibv_srq* const made = ibv_create_srq_ex(on.context, &asked);
  require(made != nullptr);
  return made;
}

}  // namespace

device& device::only() {
  static device made;
  return made;
}

device::device() {
  // The memory is laid out as follows: an inaccessible page, a page that isn't registered, the
  // registered pages, another page that isn't registered, and another inaccessible page.
  void* start =
      ::mmap(nullptr, registered + 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(start != MAP_FAILED);
  all_ = {static_cast<std::byte*>(start) + page, registered + 2 * page};
  require(::mprotect(all_.data(), all_.size(), PROT_READ | PROT_WRITE) == 0);
  memory_ = all_.subspan(page, registered);
  ibv_device** list = ibv_get_device_list(nullptr);
  require(list != nullptr && list[0] != nullptr);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  require(context != nullptr);
  domain = ibv_alloc_pd(context);
  queue = ibv_create_cq(context, 256, nullptr, nullptr, 0);
  region = ibv_reg_mr(domain, memory_.data(), memory_.size(), all_rights | IBV_ACCESS_MW_BIND);
  ibv_xrcd_init_attr receives{};
  receives.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  receives.fd = -1;
  receives.oflags = O_CREAT;
  shared_receives = ibv_open_xrcd(context, &receives);
  require(domain != nullptr && queue != nullptr && region != nullptr && shared_receives != nullptr);
  ibv_qp_init_attr initial{};
  initial.send_cq = initial.recv_cq = queue;
  initial.qp_type = IBV_QPT_UD;
  initial.cap = {1, 1, 1, 1, 0};
  ibv_qp* const some = ibv_create_qp(domain, &initial);
  require(some != nullptr);
  slot_ = some->qp_num >> softverbs::wire::index_bits;
  require(ibv_destroy_qp(some) == 0);
  initial.qp_type = IBV_QPT_RAW_PACKET;
  if (ibv_qp* const raw = ibv_create_qp(domain, &initial)) {
    may_send_frames_ = true;
    require(ibv_destroy_qp(raw) == 0);
  }
}

ibv_gid device::group(ibv_qp_type type) noexcept {
  ibv_gid result{};
  if (type == IBV_QPT_RAW_PACKET) {
    std::ranges::copy(group_of_frames, result.raw + sizeof(result.raw) - group_of_frames.size());
  } else {
    result.raw[0] = 0xff;
    result.raw[1] = 0x0e;
    result.raw[15] = 7;
  }
  return result;
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
  make_pair(shares_receives);
  connect(peer);
  if (!is_connected()) {
    const ibv_gid group = device::group(type);
    require(ibv_attach_mcast(pair, &group, 0) == 0);
  }
}

void victim::make_pair(bool shares_receives) {
  const device& on = device::only();
  ibv_qp_init_attr_ex initial{};
  initial.qp_type = type_;
  if (type_ == IBV_QPT_XRC_RECV) {
    std::ranges::generate(shared_, make_shared);
    initial.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    initial.xrcd = on.shared_receives;
  } else {
    if (shares_receives && type_ != IBV_QPT_XRC_SEND) {
      ibv_srq_init_attr receives{};
      receives.attr = {8, 2, 0};
      shared_[0] = ibv_create_srq(on.domain, &receives);
      require(shared_[0] != nullptr);
    }
    initial.comp_mask = IBV_QP_INIT_ATTR_PD;
    initial.pd = on.domain;
    initial.send_cq = initial.recv_cq = on.queue;
    initial.srq = shared_[0];
    initial.sq_sig_all = 1;
    initial.cap = {16, 8, 2, 2, 64};
    if (type_ == IBV_QPT_XRC_SEND) initial.cap.max_recv_wr = initial.cap.max_recv_sge = 0;
  }
  pair = ibv_create_qp_ex(on.context, &initial);
  require(pair != nullptr);
  if (type_ != IBV_QPT_RC && type_ != IBV_QPT_UC) return;
  window_ = ibv_alloc_mw(on.domain, IBV_MW_TYPE_2);
  require(window_ != nullptr);
  window_key_ = window_->rkey;
}

void victim::connect(std::uint32_t peer) {
  const bool requests = type_ == IBV_QPT_RC || type_ == IBV_QPT_XRC_SEND;
  const bool responds = type_ == IBV_QPT_RC || type_ == IBV_QPT_XRC_RECV;
  ibv_qp_attr wanted{};
  const auto enter = [&](ibv_qp_state state, int mask) {
    wanted.qp_state = state;
    require(ibv_modify_qp(pair, &wanted, mask | IBV_QP_STATE) == 0);
  };
  wanted.port_num = 1;
  wanted.qp_access_flags = all_rights;
  wanted.qkey = qkey;
  int mask = IBV_QP_PORT;
  if (!is_raw()) mask |= IBV_QP_PKEY_INDEX | (is_connected() ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
  enter(IBV_QPS_INIT, mask);
  wanted.path_mtu = IBV_MTU_1024;
  wanted.dest_qp_num = peer;
  wanted.rq_psn = peer_psn;
  wanted.max_dest_rd_atomic = 16;
  wanted.min_rnr_timer = 1;
  wanted.ah_attr = device::only().way_here();
  mask = is_connected() ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0;
  if (responds) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  enter(IBV_QPS_RTR, mask);
  wanted.sq_psn = psn;
  wanted.timeout = 1;
  wanted.retry_cnt = 7;
  wanted.rnr_retry = 1;
  wanted.max_rd_atomic = 16;
  mask = is_raw() ? 0 : IBV_QP_SQ_PSN;
  if (requests || responds) mask |= IBV_QP_TIMEOUT;
  if (requests) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  enter(IBV_QPS_RTS, mask);
}

victim::~victim() {
  poll();
  if (!is_connected()) {
    const ibv_gid group = device::group(type_);
    require(ibv_detach_mcast(pair, &group, 0) == 0);
  }
  for (ibv_flow* each : rules_) require(ibv_destroy_flow(each) == 0);
  require(ibv_destroy_qp(pair) == 0);
  if (window_ != nullptr) require(ibv_dealloc_mw(window_) == 0);
  for (ibv_srq* each : shared_)
    if (each != nullptr) require(ibv_destroy_srq(each) == 0);
}

std::uint32_t victim::shared_number(unsigned which) const noexcept {
  std::uint32_t number = 0;
  if (type_ == IBV_QPT_XRC_RECV) require(ibv_get_srq_num(shared_[which], &number) == 0);
  return number;
}

void victim::renew_shared(unsigned which) {
  if (type_ != IBV_QPT_XRC_RECV) return;
  require(ibv_destroy_srq(shared_[which]) == 0);
  shared_[which] = make_shared();
}

void victim::add_rule(ibv_flow_attr& attributes) {
  constexpr std::size_t most = 4;
  if (!is_raw() || rules_.size() == most) return;
  if (ibv_flow* const made = ibv_create_flow(pair, &attributes)) rules_.push_back(made);
}

void victim::post_receive(std::size_t offset, std::uint32_t length, unsigned which) {
  if (type_ == IBV_QPT_XRC_SEND) return;
  ibv_srq* const shared = shared_[type_ == IBV_QPT_XRC_RECV ? which : 0];
  const std::uint32_t half = length / 2;
  std::array pieces{device::only().piece(offset, half),
                    device::only().piece(offset + half, length - half)};
  ibv_recv_wr request{};
  request.wr_id = receive_bit | length;
  request.sg_list = pieces.data();
  request.num_sge = pieces.size();
  ibv_recv_wr* bad = nullptr;
  const int error = shared == nullptr ? ibv_post_recv(pair, &request, &bad)
                                      : ibv_post_srq_recv(shared, &request, &bad);
  if (error == 0) ++receives_;
}

void victim::submit(ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(pair, &request, &bad) == 0) ++posted_;
}

void victim::post(ibv_wr_opcode what, const ibv_sge& piece, std::uint64_t remote,
                  std::uint32_t rkey) {
  if (type_ == IBV_QPT_XRC_RECV) return;
  ibv_sge entry = piece;
  ibv_send_wr request{};
  request.wr_id = piece.length;
  request.opcode = is_connected() ? what : IBV_WR_SEND;
  request.sg_list = &entry;
  request.num_sge = 1;
  if (is_raw()) return submit(request);
  if (type_ == IBV_QPT_UD) {
    ibv_ah_attr way = device::only().way_here();
    ibv_ah* handle = ibv_create_ah(device::only().domain, &way);
    require(handle != nullptr);
    request.wr.ud = {handle, pair->qp_num, qkey};
    submit(request);
    require(ibv_destroy_ah(handle) == 0);
    return;
  }
  if (what == IBV_WR_ATOMIC_CMP_AND_SWP || what == IBV_WR_ATOMIC_FETCH_AND_ADD)
    request.wr.atomic = {remote, 1, 2, rkey};
  else
    request.wr.rdma = {remote, rkey};
  submit(request);
}

void victim::bind_window() {
  if (window_ == nullptr) return;
  const device& on = device::only();
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = window_;
  request.bind_mw.rkey = window_key_ = ibv_inc_rkey(window_key_);
  request.bind_mw.bind_info = {
      on.region, reinterpret_cast<std::uintptr_t>(on.memory().data()) + window_start, window_length,
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
  submit(request);
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
