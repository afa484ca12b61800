// SPDX-License-Identifier: Apache-2.0
#include "support/xrc.hpp"

#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/forked.hpp"
#include "support/intruder.hpp"
#include "support/peer.hpp"
#include "support/waiting_call.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

/// A file, which the destructor removes.
struct temporary_file {
  temporary_file() : descriptor(::mkstemp(name.data())) { REQUIRE(descriptor >= 0); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    ::close(descriptor);
    ::unlink(name.c_str());
  }
  std::string name = "/tmp/softverbs-xrc-XXXXXX";
  int descriptor;
};

}  // namespace

TEST_CASE("an XRC domain belongs to its file") {
  const temporary_file file;
  const temporary_file other;
  open_context device;
  open_context again;
  const auto attempt = [&](ibv_context* verbs, int descriptor, int flags) {
    errno = 0;
    return open_domain(verbs, descriptor, flags);
  };
  CHECK(attempt(device.verbs, file.descriptor, 0) == nullptr);
  CHECK(errno == EAGAIN);
  ibv_xrcd* first = attempt(device.verbs, file.descriptor, O_CREAT);
  REQUIRE(first != nullptr);
  CHECK(first->context == device.verbs);
  ibv_xrcd* second = attempt(again.verbs, file.descriptor, 0);
  REQUIRE(second != nullptr);
  CHECK(attempt(device.verbs, file.descriptor, O_CREAT | O_EXCL) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(attempt(device.verbs, other.descriptor, 0) == nullptr);
  CHECK(errno == EAGAIN);
  CHECK(attempt(device.verbs, 1'000'000, O_CREAT) == nullptr);
  CHECK(errno == EBADF);
  CHECK(ibv_close_xrcd(first) == 0);
  // The domain still exists, because its second handle is open.
  CHECK(attempt(device.verbs, file.descriptor, O_CREAT | O_EXCL) == nullptr);
  CHECK(ibv_close_xrcd(second) == 0);
  CHECK(attempt(device.verbs, file.descriptor, 0) == nullptr);
  ibv_xrcd* third = attempt(device.verbs, file.descriptor, O_CREAT | O_EXCL);
  REQUIRE(third != nullptr);
  CHECK(ibv_close_xrcd(third) == 0);
}

TEST_CASE("opening an XRC domain requires all parameters") {
  open_context device;
  ibv_xrcd_init_attr asked{};
  asked.fd = -1;
  asked.oflags = O_CREAT;
  for (const std::uint32_t mask :
       {0U, unsigned{IBV_XRCD_INIT_ATTR_FD}, unsigned{IBV_XRCD_INIT_ATTR_OFLAGS}}) {
    asked.comp_mask = mask;
    CHECK(refusal([&] { return ibv_open_xrcd(device.verbs, &asked); }) == EINVAL);
  }
  asked.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS | IBV_XRCD_INIT_ATTR_RESERVED;
  CHECK(refusal([&] { return ibv_open_xrcd(device.verbs, &asked); }) == EOPNOTSUPP);
  ibv_device_attr described{};
  REQUIRE(ibv_query_device(device.verbs, &described) == 0);
  CHECK((described.device_cap_flags & IBV_DEVICE_XRC) != 0);
}

TEST_CASE("an XRC domain and the objects that its queues use are busy while the queues exist") {
  xrc_receiver receiver;
  CHECK(ibv_close_xrcd(receiver.domain) == EBUSY);
  CHECK(ibv_destroy_cq(receiver.end.queue) == EBUSY);
  REQUIRE(ibv_destroy_qp(receiver.target) == 0);
  receiver.target = nullptr;
  CHECK(ibv_close_xrcd(receiver.domain) == EBUSY);
  REQUIRE(ibv_destroy_qp(receiver.end.pair) == 0);
  receiver.end.pair = nullptr;
  CHECK(ibv_destroy_cq(receiver.end.queue) == EBUSY);
  CHECK(ibv_dealloc_pd(receiver.end.domain) == EBUSY);
  REQUIRE(ibv_destroy_srq(receiver.shared) == 0);
  receiver.shared = nullptr;
  CHECK(ibv_close_xrcd(receiver.domain) == 0);
  receiver.domain = nullptr;
}

TEST_CASE("creating shared receive queues and queue pairs of XRC requires their attributes") {
  xrc_receiver receiver;
  ibv_srq_init_attr_ex wanted = to_share(receiver.end.domain, receiver.domain, receiver.end.queue);
  const std::uint32_t all = wanted.comp_mask;
  for (const std::uint32_t without :
       {IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ}) {
    wanted.comp_mask = all & ~without;
    CHECK(refusal([&] { return ibv_create_srq_ex(receiver.end.context, &wanted); }) == EINVAL);
  }
  wanted.comp_mask = all;
  ibv_srq* other = ibv_create_srq_ex(receiver.end.context, &wanted);
  REQUIRE(other != nullptr);
  CHECK(number_of(other) != number_of(receiver.shared));
  // Only XRC queue pairs can use this shared receive queue.
  ibv_qp_init_attr plain = pair_with(receiver.end.queue, {1, 1, 1, 1, 0});
  plain.srq = other;
  CHECK(refusal([&] { return ibv_create_qp(receiver.end.domain, &plain); }) == EINVAL);
  CHECK(ibv_destroy_srq(other) == 0);

  ibv_qp_init_attr_ex target{};
  target.qp_type = IBV_QPT_XRC_RECV;
  target.pd = receiver.end.domain;
  target.send_cq = target.recv_cq = receiver.end.queue;
  target.comp_mask = IBV_QP_INIT_ATTR_PD;
  CHECK(refusal([&] { return ibv_create_qp_ex(receiver.end.context, &target); }) == EINVAL);
  CHECK(receiver.target->pd == nullptr);
  CHECK(receiver.target->recv_cq == nullptr);
  CHECK(receiver.target->srq == nullptr);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  CHECK(ibv_post_recv(receiver.target, &receive, &bad_receive) == EINVAL);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  CHECK(ibv_post_send(receiver.target, &send, &bad_send) == EINVAL);
  CHECK(ibv_qp_to_qp_ex(receiver.target) == nullptr);
}

TEST_CASE("XRC: a message consumes a receive of the shared receive queue that its request names") {
  xrc_connection both;
  xrc_receiver& receiver = both.receiver;
  ibv_srq* second = receiver.create_shared();
  for (std::uint64_t id = 0; id < 3; ++id) {
    REQUIRE(receiver.post(receiver.shared, 10 + id, id << 16, 1 << 16) == 0);
    REQUIRE(receiver.post(second, 20 + id, (id + 4) << 16, 1 << 16) == 0);
  }
  for (std::uint64_t id = 0; id < 6; ++id) {
    ibv_srq* into = id % 2 == 0 ? receiver.shared : second;
    // This message needs two packets.
    std::fill_n(both.sender.memory.begin(), 40000, static_cast<unsigned char>(id + 1));
    REQUIRE(both.sender.send_to(id, number_of(into), 40000) == 0);
    const ibv_wc sent = both.sender.wait();
    CHECK(sent.status == IBV_WC_SUCCESS);
    CHECK(sent.opcode == IBV_WC_SEND);
    const ibv_wc received = receiver.end.wait();
    CHECK(received.status == IBV_WC_SUCCESS);
    CHECK(received.opcode == IBV_WC_RECV);
    CHECK(received.wr_id == (id % 2 == 0 ? 10U : 20U) + id / 2);
    CHECK(received.byte_len == 40000);
    CHECK(received.qp_num == receiver.target->qp_num);
    CHECK(received.src_qp == both.sender.pair->qp_num);
    const auto start = receiver.end.memory.begin() +
                       static_cast<std::ptrdiff_t>((id / 2 + (id % 2 == 0 ? 0 : 4)) << 16);
    CHECK(std::count(start, start + 40000, static_cast<int>(id + 1)) == 40000);
  }
  CHECK(ibv_destroy_srq(second) == 0);
}

TEST_CASE("XRC: writes, reads, atomics and immediate data reach the domain of the shared queue") {
  xrc_connection both(with_atomics());
  xrc_receiver& receiver = both.receiver;
  const address there = receiver.end.here();
  const std::uint32_t number = number_of(receiver.shared);
  ibv_send_wr request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.qp_type.xrc.remote_srqn = number;

  REQUIRE(receiver.post(receiver.shared, 1, 0, 64) == 0);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = 0x01020304;
  REQUIRE(both.sender.post(request, {both.sender.piece(0, 8)}) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  ibv_wc received = receiver.end.wait();
  CHECK(received.imm_data == 0x01020304);
  CHECK((received.wc_flags & IBV_WC_WITH_IMM) != 0);

  std::fill_n(both.sender.memory.begin(), 100000, static_cast<unsigned char>(9));
  REQUIRE(receiver.post(receiver.shared, 2, 0, 0) == 0);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.wr.rdma = {there.memory + 128, there.rkey};
  REQUIRE(both.sender.post(request, {both.sender.piece(0, 100000)}) == 0);
  CHECK(both.sender.wait().opcode == IBV_WC_RDMA_WRITE);
  received = receiver.end.wait();
  CHECK(received.wr_id == 2);
  CHECK(received.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(received.byte_len == 100000);
  CHECK(std::count(receiver.end.memory.begin() + 128, receiver.end.memory.begin() + 100128, 9) ==
        100000);

  request.opcode = IBV_WR_RDMA_READ;
  REQUIRE(both.sender.post(request, {both.sender.piece(1 << 19, 100000)}) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  const auto read = both.sender.memory.begin() + (1 << 19);
  CHECK(std::count(read, read + 100000, 9) == 100000);

  receiver.end.memory[0] = 5;
  std::fill_n(receiver.end.memory.begin() + 1, 7, static_cast<unsigned char>(0));
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {there.memory, 3, 0, there.rkey};
  REQUIRE(both.sender.post(request, {both.sender.piece(0, 8)}) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  CHECK(both.sender.memory[0] == 5);
  CHECK(receiver.end.memory[0] == 8);
}

TEST_CASE("XRC: requests built by function calls name a shared receive queue as well") {
  xrc_connection both({}, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_qp_ex* builder = ibv_qp_to_qp_ex(both.sender.pair);
  REQUIRE(builder != nullptr);
  REQUIRE(both.receiver.post(both.receiver.shared, 7, 0, 64) == 0);
  both.sender.memory[0] = 42;
  ibv_wr_start(builder);
  builder->wr_id = 3;
  builder->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(builder);
  ibv_wr_set_xrc_srqn(builder, number_of(both.receiver.shared));
  ibv_wr_set_sge(builder, both.sender.region->lkey,
                 reinterpret_cast<std::uintptr_t>(both.sender.memory.data()), 8);
  REQUIRE(ibv_wr_complete(builder) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  CHECK(both.receiver.end.wait().wr_id == 7);
  CHECK(both.receiver.end.memory[0] == 42);
}

TEST_CASE("XRC: a request that names an unknown queue, or a queue of another domain, is invalid") {
  xrc_connection both;
  xrc_receiver elsewhere;
  REQUIRE(both.receiver.post(both.receiver.shared, 1, 0, 64) == 0);
  REQUIRE(elsewhere.post(elsewhere.shared, 1, 0, 64) == 0);
  const bool nobody = GENERATE(true, false);
  const std::uint32_t wrong = nobody ? 0x123456 : number_of(elsewhere.shared);
  const bool reads = GENERATE(true, false);
  ibv_send_wr request{};
  request.opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {both.receiver.end.here().memory, both.receiver.end.here().rkey};
  request.qp_type.xrc.remote_srqn = wrong;
  REQUIRE(both.sender.post(request, {both.sender.piece(0, 8)}) == 0);
  CHECK(both.sender.wait().status == IBV_WC_REM_INV_REQ_ERR);
  const ibv_async_event event = both.receiver.end.event();
  CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR);
  CHECK(event.element.qp == both.receiver.target);
  CHECK(both.receiver.state() == IBV_QPS_ERR);
  CHECK(both.receiver.end.quiet());
}

TEST_CASE("XRC: memory is refused unless it belongs to the shared queue's protection domain") {
  xrc_connection both;
  ibv_pd* other = ibv_alloc_pd(both.receiver.end.context);
  REQUIRE(ibv_rereg_mr(both.receiver.end.region, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0) ==
          0);
  ibv_send_wr request{};
  request.opcode = GENERATE(IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE);
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {both.receiver.end.here().memory, both.receiver.end.here().rkey};
  request.qp_type.xrc.remote_srqn = number_of(both.receiver.shared);
  REQUIRE(both.sender.post(request, {both.sender.piece(0, 8)}) == 0);
  CHECK(both.sender.wait().status == IBV_WC_REM_ACCESS_ERR);
  CHECK(both.receiver.end.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  REQUIRE(ibv_dereg_mr(both.receiver.end.region) == 0);
  both.receiver.end.region = nullptr;
  CHECK(ibv_dealloc_pd(other) == 0);
}

TEST_CASE("XRC: a message waits for a receive and one that is too long is reported") {
  xrc_connection both;
  REQUIRE(both.sender.send_to(1, number_of(both.receiver.shared), 8) == 0);
  CHECK(both.sender.quiet());
  REQUIRE(both.receiver.post(both.receiver.shared, 1, 0, 64) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  CHECK(both.receiver.end.wait().status == IBV_WC_SUCCESS);
  REQUIRE(both.receiver.post(both.receiver.shared, 2, 0, 4) == 0);
  REQUIRE(both.sender.send_to(2, number_of(both.receiver.shared), 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc received = both.receiver.end.wait();
  CHECK(received.status == IBV_WC_LOC_LEN_ERR);
  CHECK(received.wr_id == 2);
  CHECK(received.qp_num == both.receiver.target->qp_num);
}

TEST_CASE("XRC: the limit event of a shared receive queue is raised") {
  xrc_connection both;
  ibv_srq_attr limit{0, 0, 2};
  REQUIRE(ibv_modify_srq(both.receiver.shared, &limit, IBV_SRQ_LIMIT) == 0);
  for (std::uint64_t id = 0; id < 2; ++id)
    REQUIRE(both.receiver.post(both.receiver.shared, id, 0, 64) == 0);
  CHECK_FALSE(has_event(both.receiver.end.context, a_moment));
  REQUIRE(both.sender.send_to(1, number_of(both.receiver.shared), 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  const ibv_async_event event = both.receiver.end.event();
  CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(event.element.srq == both.receiver.shared);
}

TEST_CASE(
    "XRC: completions outlive their queue pair and are removed with the shared receive queue") {
  xrc_connection both;
  for (std::uint64_t id = 0; id < 2; ++id) {
    REQUIRE(both.receiver.post(both.receiver.shared, id, 0, 64) == 0);
    REQUIRE(both.sender.send_to(id, number_of(both.receiver.shared), 8) == 0);
    CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  }
  const std::uint32_t number = both.receiver.target->qp_num;
  REQUIRE(ibv_destroy_qp(both.receiver.target) == 0);
  both.receiver.target = nullptr;
  const ibv_wc received = both.receiver.end.wait();
  CHECK(received.wr_id == 0);
  CHECK(received.qp_num == number);
  REQUIRE(ibv_destroy_srq(both.receiver.shared) == 0);
  both.receiver.shared = nullptr;
  CHECK(both.receiver.end.quiet());
}

TEST_CASE("XRC: a destroyed shared receive queue receives nothing") {
  xrc_connection both;
  const std::uint32_t number = number_of(both.receiver.shared);
  REQUIRE(both.receiver.post(both.receiver.shared, 1, 0, 64) == 0);
  REQUIRE(ibv_destroy_srq(both.receiver.shared) == 0);
  both.receiver.shared = nullptr;
  REQUIRE(both.sender.send_to(1, number, 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("XRC: the rest of a message isn't delivered to another queue with the same number") {
  using namespace softverbs;
  xrc_connection both;
  const std::uint32_t number = number_of(both.receiver.shared);
  REQUIRE(both.receiver.post(both.receiver.shared, 1, 0, 2 * packet_bytes) == 0);
  struct {
    packet_header header;
    std::array<unsigned char, packet_bytes> payload;
  } message{};
  message.payload.fill(0x5a);
  intruder from(both.receiver.target->qp_num);
  const auto send = [&](std::uint8_t place, std::uint32_t packet) {
    packet_header& header = message.header;
    header.kind = packet_kind::send;
    header.flags = place | packet_flag::xrc;
    header.network = on_ethernet() ? 2 : 0;
    header.target_qpn = both.receiver.target->qp_num;
    header.source_qpn = both.sender.pair->qp_num;
    header.psn = (both.sender.psn + packet) & psn_mask;
    header.offset = packet * packet_bytes;
    header.payload = packet_bytes;
    header.shared_queue = number;
    from.send(&message, sizeof(message));
  };
  send(packet_flag::first, 0);
  const auto* filled =
      static_cast<volatile unsigned char*>(&both.receiver.end.memory[packet_bytes - 1]);
  REQUIRE(eventually([&] { return *filled == 0x5a; }));
  REQUIRE(ibv_destroy_srq(both.receiver.shared) == 0);
  // After some time, the numbers of queues are reused. Create queues until this number comes up
  // again.
  both.receiver.shared = both.receiver.create_shared();
  while (number_of(both.receiver.shared) != number) {
    REQUIRE(ibv_destroy_srq(both.receiver.shared) == 0);
    both.receiver.shared = both.receiver.create_shared();
  }
  REQUIRE(both.receiver.post(both.receiver.shared, 2, 1 << 18, 2 * packet_bytes) == 0);
  send(packet_flag::last, 1);
  CHECK(eventually([&] { return both.receiver.state() == IBV_QPS_ERR; }));
  // The request breaks the connection, so the receive that the packet has consumed is flushed.
  const ibv_wc flushed = both.receiver.end.wait();
  CHECK(flushed.wr_id == 2);
  CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
  const auto& memory = both.receiver.end.memory;
  CHECK(std::count(memory.begin() + packet_bytes, memory.end(), 0x5a) == 0);
}

TEST_CASE("XRC: a queue pair is destroyed with the last object that refers to it") {
  const temporary_file file;
  options wanted;
  xrc_connection both(wanted, 0, file.descriptor);
  open_context second;
  ibv_xrcd* domain = open_domain(second.verbs, file.descriptor, 0);
  REQUIRE(domain != nullptr);
  ibv_qp_open_attr asked = to_open(both.receiver.target, domain);
  asked.comp_mask |= IBV_QP_OPEN_ATTR_CONTEXT;
  asked.qp_context = &second;
  const auto refused = [&](ibv_qp_open_attr wrong) {
    errno = 0;
    return ibv_open_qp(second.verbs, &wrong) == nullptr && errno == EINVAL;
  };
  ibv_qp_open_attr wrong = asked;
  wrong.qp_num = both.sender.pair->qp_num;
  CHECK(refused(wrong));
  wrong = asked;
  wrong.qp_type = IBV_QPT_XRC_SEND;
  CHECK(refused(wrong));
  wrong = asked;
  wrong.comp_mask &= ~unsigned{IBV_QP_OPEN_ATTR_NUM};
  CHECK(refused(wrong));
  ibv_qp* shared = ibv_open_qp(second.verbs, &asked);
  REQUIRE(shared != nullptr);
  CHECK(shared->context == second.verbs);
  CHECK(shared->qp_context == &second);
  CHECK(shared->qp_num == both.receiver.target->qp_num);
  CHECK(shared->state == IBV_QPS_RTS);
  CHECK(ibv_close_xrcd(domain) == EBUSY);

  // The creator destroys its object first, but the context in which it created the queue pair stays
  // open.
  REQUIRE(ibv_destroy_qp(both.receiver.target) == 0);
  both.receiver.target = nullptr;
  REQUIRE(both.receiver.post(both.receiver.shared, 1, 0, 64) == 0);
  REQUIRE(both.sender.send_to(1, number_of(both.receiver.shared), 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_SUCCESS);
  CHECK(both.receiver.end.wait().status == IBV_WC_SUCCESS);
  // Every context that still has an object for the queue pair gets its events.
  REQUIRE(both.sender.send_to(2, 0x123456, 8) == 0);
  CHECK(both.sender.wait().status == IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(second.verbs, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR);
  CHECK(event.element.qp == shared);
  CHECK_FALSE(has_event(both.receiver.end.context, a_moment));
  CHECK(returns_only_after([&] { return ibv_destroy_qp(shared); },
                           [&] { ibv_ack_async_event(&event); }) == 0);
  CHECK(refusal([&] { return ibv_open_qp(second.verbs, &asked); }) == EINVAL);
  CHECK(ibv_close_xrcd(domain) == 0);
}

TEST_CASE("XRC: a queue pair outlives the context in which it was created") {
  const temporary_file file;
  open_context mine;
  ibv_xrcd* domain = open_domain(mine.verbs, file.descriptor, O_CREAT);
  REQUIRE(domain != nullptr);
  ibv_context* first = open_device("soft0");
  ibv_qp* made = create_target(open_domain(first, file.descriptor, 0));
  REQUIRE(made != nullptr);
  ibv_qp_open_attr asked = to_open(made, domain);
  ibv_qp* opened = ibv_open_qp(mine.verbs, &asked);
  REQUIRE(opened != nullptr);
  CHECK(ibv_close_device(first) == 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  CHECK(ibv_modify_qp(opened, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(opened->state == IBV_QPS_INIT);
  ibv_qp_init_attr initial{};
  CHECK(ibv_query_qp(opened, &attributes, IBV_QP_STATE, &initial) == 0);
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(initial.qp_type == IBV_QPT_XRC_RECV);
  CHECK(ibv_destroy_qp(opened) == 0);
  CHECK(ibv_close_xrcd(domain) == 0);
}

TEST_CASE("XRC: closing a device frees the remaining objects of a domain") {
  ibv_context* verbs = open_device("soft0");
  ibv_pd* protection = ibv_alloc_pd(verbs);
  ibv_cq* queue = ibv_create_cq(verbs, 4, nullptr, nullptr, 0);
  ibv_xrcd* domain = open_domain(verbs, -1, O_CREAT);
  ibv_srq_init_attr_ex wanted = to_share(protection, domain, queue);
  CHECK(ibv_create_srq_ex(verbs, &wanted) != nullptr);
  CHECK(create_target(domain) != nullptr);
  CHECK(ibv_close_device(verbs) == 0);
}

TEST_CASE("XRC: each end of a connection accepts the attributes that concern it") {
  xrc_connection both;
  constexpr int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int to_receive =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int of_target = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int of_sender = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  constexpr int to_send = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  ibv_qp_attr attributes = both.receiver.attributes(both.sender.here());
  const auto modify = [&](ibv_qp* pair, ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    return ibv_modify_qp(pair, &attributes, mask);
  };
  ibv_qp* const sender = both.sender.pair;
  ibv_qp* const target = both.receiver.target;
  for (ibv_qp* pair : {sender, target}) {
    REQUIRE(modify(pair, IBV_QPS_RESET, IBV_QP_STATE) == 0);
    CHECK(modify(pair, IBV_QPS_INIT, to_init & ~IBV_QP_ACCESS_FLAGS) == EINVAL);
    CHECK(modify(pair, IBV_QPS_INIT, to_init) == 0);
  }
  CHECK(modify(target, IBV_QPS_RTR, to_receive) == EINVAL);
  CHECK(modify(sender, IBV_QPS_RTR, to_receive & ~IBV_QP_DEST_QPN) == EINVAL);
  CHECK(modify(target, IBV_QPS_RTR, to_receive | of_target) == 0);
  // A sending queue pair ignores the attributes that only a receiving queue pair needs.
  CHECK(modify(sender, IBV_QPS_RTR, to_receive | of_target) == 0);
  CHECK(modify(target, IBV_QPS_RTS, to_send & ~IBV_QP_TIMEOUT) == EINVAL);
  CHECK(modify(sender, IBV_QPS_RTS, to_send) == EINVAL);
  CHECK(modify(target, IBV_QPS_RTS, to_send | of_sender) == 0);
  CHECK(modify(sender, IBV_QPS_RTS, to_send | of_sender) == 0);
  CHECK(modify(target, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER) == 0);
  for (ibv_qp* pair : {sender, target}) {
    CHECK(modify(pair, IBV_QPS_SQD, IBV_QP_STATE) == 0);
    CHECK(modify(pair, IBV_QPS_RTS, IBV_QP_STATE) == 0);
    CHECK(modify(pair, IBV_QPS_ERR, IBV_QP_STATE) == 0);
    CHECK(pair->state == IBV_QPS_ERR);
  }
}

TEST_CASE("XRC: only packets of XRC peers are accepted") {
  xrc_receiver receiver;
  REQUIRE(receiver.post(receiver.shared, 1, 0, 64) == 0);
  endpoint sender(options{.timeout = 8, .retry_count = 1});
  sender.connect(receiver.here());
  REQUIRE(receiver.connect(sender.here()) == 0);
  REQUIRE(sender.send(1, {sender.piece(0, 8)}) == 0);
  CHECK(sender.wait().status == IBV_WC_RETRY_EXC_ERR);
  CHECK(receiver.end.quiet());
}

TEST_CASE("XRC: requests to another process that dies fail") {
  peer other("xrc");
  xrc_sender sender;
  address there{};
  std::uint32_t number = 0;
  const address here = sender.here();
  other.tell(&here, sizeof(here));
  other.hear(&there, sizeof(there));
  other.hear(&number, sizeof(number));
  sender.connect(there);
  other.hear();
  for (std::uint64_t id = 0; id < 20; ++id) {
    REQUIRE(sender.send_to(id, number, 50000) == 0);
    CHECK(sender.wait().status == IBV_WC_SUCCESS);
  }
  other.kill();
  REQUIRE(sender.send_to(99, number, 8) == 0);
  CHECK(sender.wait().status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("XRC: requests can't be posted to a receiving queue pair, even in RTS") {
  xrc_connection both;
  ibv_qp* const target = both.receiver.target;
  REQUIRE(both.receiver.state() == IBV_QPS_RTS);
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  CHECK(ibv_post_send(target, &send, &bad_send) == EINVAL);
  CHECK(bad_send == &send);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  CHECK(ibv_post_recv(target, &receive, &bad_receive) == EINVAL);
  CHECK(bad_receive == &receive);
  ibv_mw* window = ibv_alloc_mw(both.receiver.end.domain, IBV_MW_TYPE_1);
  REQUIRE(window != nullptr);
  ibv_mw_bind binding{};
  CHECK(ibv_bind_mw(target, window, &binding) == EINVAL);
  CHECK(ibv_dealloc_mw(window) == 0);
}

TEST_CASE("XRC: one handle of a queue pair can be destroyed while another handle is used") {
  const temporary_file file;
  open_context one;
  open_context other;
  ibv_xrcd* mine = open_domain(one.verbs, file.descriptor, O_CREAT);
  ibv_xrcd* theirs = open_domain(other.verbs, file.descriptor, 0);
  REQUIRE(mine != nullptr);
  REQUIRE(theirs != nullptr);
  ibv_qp* used = create_target(mine);
  REQUIRE(used != nullptr);
  ibv_qp_open_attr asked = to_open(used, theirs);
  std::atomic<bool> done{false};
  std::atomic<int> failures{0};
  std::thread user([&] {
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    while (!done.load()) {
      ibv_qp_attr reset{};
      if (ibv_modify_qp(used, &reset, IBV_QP_STATE) != 0) ++failures;
      if (ibv_post_recv(used, &receive, &bad) != EINVAL) ++failures;
    }
  });
  for (int round = 0; round < 50; ++round) {
    ibv_qp* opened = ibv_open_qp(other.verbs, &asked);
    if (opened == nullptr || ibv_destroy_qp(opened) != 0) ++failures;
  }
  done = true;
  user.join();
  CHECK(failures == 0);
  CHECK(ibv_destroy_qp(used) == 0);
  CHECK(ibv_close_xrcd(mine) == 0);
  CHECK(ibv_close_xrcd(theirs) == 0);
}

TEST_CASE("closing an XRC domain keeps the program's locks on its file") {
  const temporary_file file;
  open_context device;
  flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  REQUIRE(::fcntl(file.descriptor, F_SETLK, &lock) == 0);
  ibv_xrcd* domain = open_domain(device.verbs, file.descriptor, O_CREAT);
  REQUIRE(domain != nullptr);
  REQUIRE(ibv_close_xrcd(domain) == 0);
  const forked child(
      [&] { return ::fcntl(file.descriptor, F_SETLK, &lock) == -1 && errno == EAGAIN; });
  CHECK(child.ended_well());
}
