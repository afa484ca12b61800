// SPDX-License-Identifier: Apache-2.0
#include "support/fabric.hpp"

#include "catch.hpp"

#include <dlfcn.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

std::uint32_t next_psn() {
  // The numbers start shortly before the point at which they wrap around, so that tests cross this
  // point.
  static std::uint32_t last = 0xfffff0;
  return last = (last + 7) & 0xffffff;
}

}  // namespace

bool faults_are_in_front() { return ::dlsym(RTLD_DEFAULT, "softverbs_faults_in_front") != nullptr; }

bool is_readable(int descriptor, std::chrono::milliseconds limit) {
  pollfd file{descriptor, POLLIN, 0};
  return ::poll(&file, 1, static_cast<int>(limit.count())) == 1;
}

bool on_ethernet() {
  const char* layer = std::getenv("SOFTVERBS_LINK_LAYER");
  return layer == nullptr || std::string(layer) == "ethernet";
}

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* result = nullptr;
  for (int at = 0; at < count && result == nullptr; ++at)
    if (std::strcmp(ibv_get_device_name(list[at]), name) == 0) result = ibv_open_device(list[at]);
  ibv_free_device_list(list);
  if (result == nullptr) throw std::runtime_error(std::string("can't open ") + name);
  return result;
}

options patient() { return {.timeout = 17}; }

options impatient() { return {.timeout = 1, .retry_count = 2}; }

options with_atomics() {
  options result;
  result.region_access |= IBV_ACCESS_REMOTE_ATOMIC;
  result.queue_pair_access |= IBV_ACCESS_REMOTE_ATOMIC;
  return result;
}

endpoint::endpoint(const options& asked) : wanted(asked), memory(asked.memory), psn(next_psn()) {
  if (const endpoint* host = wanted.host) {
    context = host->context;
    domain = host->domain;
    queue = host->queue;
    shared = host->shared;
  } else {
    context = open_device(wanted.device);
    domain = ibv_alloc_pd(context);
    if (wanted.channel) channel = ibv_create_comp_channel(context);
    queue = ibv_create_cq(context, wanted.cq_entries, this, channel, 0);
    ibv_srq_init_attr receives{};
    receives.attr = {wanted.receive_requests, wanted.entries, 0};
    if (wanted.shared_receives) shared = ibv_create_srq(domain, &receives);
  }
  region = ibv_reg_mr(domain, memory.data(), memory.size(), wanted.region_access);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue;
  attributes.recv_cq = queue;
  attributes.qp_type = wanted.type;
  attributes.srq = shared;
  attributes.sq_sig_all = wanted.signal_all;
  attributes.cap = {wanted.send_requests, wanted.receive_requests, wanted.entries, wanted.entries,
                    wanted.inline_data};
  pair = ibv_create_qp(domain, &attributes);
  granted = attributes.cap;
  if (domain == nullptr || queue == nullptr || region == nullptr || pair == nullptr)
    throw std::runtime_error("can't create an endpoint");
}

endpoint::~endpoint() {
  if (pair != nullptr) ibv_destroy_qp(pair);
  if (region != nullptr) ibv_dereg_mr(region);
  if (wanted.host != nullptr) return;
  if (shared != nullptr) ibv_destroy_srq(shared);
  ibv_destroy_cq(queue);
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
  ibv_dealloc_pd(domain);
  ibv_close_device(context);
}

address endpoint::here() const {
  address result{};
  result.qpn = pair->qp_num;
  result.psn = psn;
  ibv_port_attr port{};
  if (ibv_query_port(context, wanted.port, &port) != 0)
    throw std::runtime_error("ibv_query_port failed");
  result.lid = port.lid;
  if (ibv_query_gid(context, wanted.port, on_ethernet() ? wanted.gid_index : 0, &result.gid) != 0)
    throw std::runtime_error("ibv_query_gid failed");
  result.memory = reinterpret_cast<std::uintptr_t>(memory.data());
  result.rkey = region->rkey;
  result.length = static_cast<std::uint32_t>(memory.size());
  return result;
}

int endpoint::initialize() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = wanted.port;
  attributes.qp_access_flags = wanted.queue_pair_access;
  attributes.qkey = wanted.qkey;
  const int own = wanted.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own);
}

int endpoint::ready_to_receive(const address& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.qpn;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = wanted.reads;
  attributes.min_rnr_timer = wanted.rnr_timer;
  attributes.ah_attr = address_of(peer);
  int mask = IBV_QP_STATE;
  if (wanted.type != IBV_QPT_UD)
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (wanted.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(pair, &attributes, mask);
}

bool endpoint::on_ethernet() const {
  ibv_port_attr port{};
  if (ibv_query_port(context, wanted.port, &port) != 0)
    throw std::runtime_error("ibv_query_port failed");
  return port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

ibv_ah_attr endpoint::address_of(const address& peer) const {
  ibv_ah_attr result{};
  result.port_num = wanted.port;
  result.dlid = peer.lid;
  if (on_ethernet()) {
    result.is_global = 1;
    result.grh.dgid = peer.gid;
    result.grh.sgid_index = wanted.gid_index;
    result.grh.hop_limit = 64;
  }
  return result;
}

int endpoint::ready_to_send() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn;
  attributes.timeout = wanted.timeout;
  attributes.retry_cnt = wanted.retry_count;
  attributes.rnr_retry = wanted.rnr_retry;
  attributes.max_rd_atomic = wanted.reads;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (wanted.type == IBV_QPT_RC || wanted.type == IBV_QPT_XRC_SEND)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(pair, &attributes, mask);
}

void endpoint::connect(const address& peer) {
  if (initialize() != 0 || ready_to_receive(peer) != 0 || ready_to_send() != 0)
    throw std::runtime_error("can't connect");
}

int endpoint::change(ibv_qp_state next) {
  ibv_qp_attr attributes{};
  attributes.qp_state = next;
  return ibv_modify_qp(pair, &attributes, IBV_QP_STATE);
}

ibv_qp_state endpoint::state() const { return attributes_of(pair).qp_state; }

std::vector<ibv_send_wr> list_of_writes(std::size_t count, ibv_sge& piece, const address& to,
                                        unsigned flags) {
  std::vector<ibv_send_wr> requests(count);
  for (std::size_t at = 0; at < count; ++at) {
    requests[at].wr_id = at + 1;
    requests[at].next = at + 1 < count ? &requests[at + 1] : nullptr;
    requests[at].sg_list = &piece;
    requests[at].num_sge = 1;
    requests[at].opcode = IBV_WR_RDMA_WRITE;
    requests[at].send_flags = flags;
    requests[at].wr.rdma = {to.memory, to.rkey};
  }
  return requests;
}

address_handle::address_handle(const endpoint& from, ibv_ah_attr to)
    : handle(ibv_create_ah(from.domain, &to)) {
  REQUIRE(handle != nullptr);
}

address_handle::address_handle(const endpoint& from, const address& to)
    : address_handle(from, from.address_of(to)) {}

address_handle::~address_handle() { CHECK(ibv_destroy_ah(handle) == 0); }

ibv_qp_init_attr pair_with(ibv_cq* queue, const ibv_qp_cap& capacities, ibv_qp_type type) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue;
  wanted.qp_type = type;
  wanted.cap = capacities;
  return wanted;
}

ibv_cq* take_event_of(ibv_comp_channel* channel) {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  REQUIRE(ibv_get_cq_event(channel, &queue, &context) == 0);
  return queue;
}

ibv_qp_attr attributes_of(ibv_qp* pair, int mask) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (ibv_query_qp(pair, &attributes, mask, &initial) != 0)
    throw std::runtime_error("ibv_query_qp failed");
  return attributes;
}

std::uint32_t next_psn_of(const endpoint& end) {
  return attributes_of(end.pair, IBV_QP_SQ_PSN).sq_psn;
}

bool has_event(const ibv_context* verbs, std::chrono::milliseconds limit) {
  return is_readable(verbs->async_fd, limit);
}

void fill(endpoint& end, std::size_t offset, std::size_t length, unsigned seed) {
  for (std::size_t at = 0; at < length; ++at)
    end.memory[offset + at] = static_cast<unsigned char>((at * 7 + at / 251 + seed) & 0xff);
}

bool same(const endpoint& left, std::size_t from, const endpoint& right, std::size_t to,
          std::size_t length) {
  return std::memcmp(left.memory.data() + from, right.memory.data() + to, length) == 0;
}

std::uint64_t word(const endpoint& end, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, end.memory.data() + offset, sizeof(value));
  return value;
}

std::uint64_t changing_word(const endpoint& end, std::size_t offset) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(end.memory.data() + offset),
                         __ATOMIC_SEQ_CST);
}

void set_word(endpoint& end, std::size_t offset, std::uint64_t value) {
  std::memcpy(end.memory.data() + offset, &value, sizeof(value));
}

ibv_sge endpoint::piece(std::size_t offset, std::uint32_t length) const {
  return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, length, region->lkey};
}

int endpoint::post_receive(std::uint64_t id, const std::vector<ibv_sge>& pieces) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = const_cast<ibv_sge*>(pieces.data());
  request.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad = nullptr;
  return shared != nullptr ? ibv_post_srq_recv(shared, &request, &bad)
                           : ibv_post_recv(pair, &request, &bad);
}

namespace {

ibv_send_wr request_of(std::uint64_t id, ibv_wr_opcode opcode, unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = opcode;
  request.send_flags = flags;
  return request;
}

}  // namespace

int endpoint::post(ibv_send_wr request, const std::vector<ibv_sge>& pieces) {
  request.sg_list = const_cast<ibv_sge*>(pieces.data());
  request.num_sge = static_cast<int>(pieces.size());
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair, &request, &bad);
  if (error != 0 && bad != &request)
    throw std::runtime_error("bad_wr isn't the request that failed");
  return error;
}

int endpoint::send(std::uint64_t id, const std::vector<ibv_sge>& pieces, unsigned flags) {
  return post(request_of(id, IBV_WR_SEND, flags), pieces);
}

int endpoint::write(std::uint64_t id, const std::vector<ibv_sge>& pieces, const address& peer,
                    std::uint64_t offset, unsigned flags) {
  ibv_send_wr request = request_of(id, IBV_WR_RDMA_WRITE, flags);
  request.wr.rdma = {peer.memory + offset, peer.rkey};
  return post(request, pieces);
}

int endpoint::read(std::uint64_t id, const std::vector<ibv_sge>& pieces, const address& peer,
                   std::uint64_t offset, unsigned flags) {
  ibv_send_wr request = request_of(id, IBV_WR_RDMA_READ, flags);
  request.wr.rdma = {peer.memory + offset, peer.rkey};
  return post(request, pieces);
}

int endpoint::fetch_and_add(std::uint64_t id, const ibv_sge& into, const address& peer,
                            std::uint64_t amount, std::uint64_t offset, unsigned flags) {
  ibv_send_wr request = request_of(id, IBV_WR_ATOMIC_FETCH_AND_ADD, flags);
  request.wr.atomic = {peer.memory + offset, amount, 0, peer.rkey};
  return post(request, {into});
}

int endpoint::compare_and_swap(std::uint64_t id, const ibv_sge& into, const address& peer,
                               std::uint64_t compare, std::uint64_t swap, std::uint64_t offset) {
  ibv_send_wr request = request_of(id, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED);
  request.wr.atomic = {peer.memory + offset, compare, swap, peer.rkey};
  return post(request, {into});
}

int endpoint::send_to(ibv_ah* handle, std::uint32_t qpn, std::uint64_t id,
                      const std::vector<ibv_sge>& pieces, unsigned flags) {
  ibv_send_wr request = request_of(id, IBV_WR_SEND, flags);
  request.wr.ud = {handle, qpn, wanted.qkey};
  return post(request, pieces);
}

ibv_wc endpoint::wait() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  ibv_wc result{};
  for (;;) {
    const int count = ibv_poll_cq(queue, 1, &result);
    if (count == 1) return result;
    if (count < 0) throw std::runtime_error("ibv_poll_cq failed");
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("no completion arrived");
  }
}

bool endpoint::quiet() {
  const auto until = std::chrono::steady_clock::now() + a_moment;
  ibv_wc result{};
  for (int rounds = 0; rounds < 20 || std::chrono::steady_clock::now() < until; ++rounds) {
    if (ibv_poll_cq(queue, 1, &result) != 0) return false;
    // While another thread does the device's work, polling does none, and that thread may itself be
    // waiting for a processor. Allocating a domain waits for that thread to finish.
    if (ibv_pd* none = ibv_alloc_pd(context)) ibv_dealloc_pd(none);
  }
  return true;
}

ibv_async_event endpoint::event() {
  if (!has_event(context, patience)) throw std::runtime_error("no asynchronous event arrived");
  ibv_async_event result{};
  if (ibv_get_async_event(context, &result) != 0)
    throw std::runtime_error("ibv_get_async_event failed");
  ibv_ack_async_event(&result);
  return result;
}

connection::connection(const options& left_wants, const options& right_wants)
    : left(left_wants), right(right_wants) {
  const address from_left = left.here();
  const address from_right = right.here();
  left.connect(from_right);
  right.connect(from_left);
}

extended_endpoint::extended_endpoint(ibv_cq_init_attr_ex asked, const options& wants)
    : endpoint(wants) {
  ibv_destroy_qp(pair);
  ibv_destroy_cq(queue);
  if (asked.cqe == 0) asked.cqe = 64;
  if (asked.wc_flags == 0)
    asked.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                     IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  asked.cq_context = this;
  asked.channel = channel;
  extended = ibv_create_cq_ex(context, &asked);
  if (extended == nullptr) throw std::runtime_error("ibv_create_cq_ex failed");
  queue = ibv_cq_ex_to_cq(extended);
  ibv_qp_init_attr attributes = pair_with(queue, {64, 64, 4, 4, 64});
  pair = ibv_create_qp(domain, &attributes);
  if (pair == nullptr) throw std::runtime_error("ibv_create_qp failed");
}

void extended_endpoint::start() {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  ibv_poll_cq_attr nothing{};
  int error = ENOENT;
  while (error == ENOENT && std::chrono::steady_clock::now() < deadline)
    error = ibv_start_poll(extended, &nothing);
  if (error != 0) throw std::runtime_error("no completion arrived");
}

ibv_qp_ex* build_requests_of(endpoint& end, std::uint64_t operations) {
  ibv_destroy_qp(end.pair);
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = end.queue;
  attributes.qp_type = end.wanted.type;
  attributes.cap = {end.wanted.send_requests, end.wanted.receive_requests, end.wanted.entries,
                    end.wanted.entries, end.wanted.inline_data};
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = end.domain;
  attributes.send_ops_flags = operations;
  end.pair = ibv_create_qp_ex(end.context, &attributes);
  if (end.pair == nullptr) throw std::runtime_error("ibv_create_qp_ex failed");
  end.granted = attributes.cap;
  return ibv_qp_to_qp_ex(end.pair);
}

void still_works(connection& link) {
  fill(link.left, 0, 1000, 77);
  REQUIRE(link.right.post_receive(77, {link.right.piece(half, 1000)}) == 0);
  REQUIRE(link.left.send(78, {link.left.piece(0, 1000)}) == 0);
  CHECK(link.right.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(same(link.left, 0, link.right, half, 1000));
}

building_connection::building_connection(std::uint64_t operations, const options& left_wants,
                                         const options& right_wants)
    : left(left_wants), right(right_wants), build(build_requests_of(left, operations)) {
  left.connect(right.here());
  right.connect(left.here());
}
