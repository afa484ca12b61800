// SPDX-License-Identifier: Apache-2.0
// Connections in RDMA_PS_IB, the port space for all transports: with UC, and with XRC, whose two
// ends are different.
#include "catch.hpp"
#include "support/cm_fabric.hpp"
#include "support/xrc.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

namespace {

/// An identifier, which the destructor passes to rdma_destroy_ep. If it has a channel, its calls
/// don't block.
struct one_end {
  one_end() = default;
  explicit one_end(rdma_cm_id* made) : id(made) {}
  one_end(ibv_qp_type type, std::uint16_t port, int flags = 0) {
    rdma_addrinfo* const address = look_up(port, flags, RDMA_PS_IB, type);
    ibv_qp_init_attr wanted = queue_pair(type);
    // A listener's attributes would be those of the queue pairs that rdma_get_request creates.
    const bool has_queue_pair = (flags & RAI_PASSIVE) == 0;
    const int made = rdma_create_ep(&id, address, nullptr, has_queue_pair ? &wanted : nullptr);
    rdma_freeaddrinfo(address);
    REQUIRE(made == 0);
  }
  one_end(ibv_qp_type type, std::uint16_t port, event_source& events, int flags = 0)
      : one_end(type, port, flags) {
    REQUIRE(rdma_migrate_id(id, events.channel) == 0);
  }
  one_end(const one_end&) = delete;
  one_end& operator=(const one_end&) = delete;
  ~one_end() {
    if (id != nullptr) rdma_destroy_ep(id);
  }

  static ibv_qp_init_attr queue_pair(ibv_qp_type type) {
    ibv_qp_init_attr wanted{};
    wanted.qp_type = type;
    wanted.cap = {4, 4, 1, 1, 0};
    wanted.sq_sig_all = 1;
    if (type == IBV_QPT_XRC_SEND) wanted.cap.max_recv_wr = wanted.cap.max_recv_sge = 0;
    if (type == IBV_QPT_XRC_RECV) wanted.cap.max_send_wr = wanted.cap.max_send_sge = 0;
    return wanted;
  }
  int create_queue_pair() const {
    ibv_qp_init_attr wanted = queue_pair(id->qp_type);
    return rdma_create_qp(id, nullptr, &wanted);
  }
  int create_shared(std::uint32_t receives = 4) const {
    ibv_srq_init_attr wanted{};
    wanted.attr = {receives, 1, 0};
    return rdma_create_srq(id, nullptr, &wanted);
  }

  rdma_cm_id* id = nullptr;
};

/// A listening end and a connecting end, each with a channel.
struct asking_and_listening {
  asking_and_listening(ibv_qp_type listening, ibv_qp_type asking)
      : listener(listening, 0, server_events, RAI_PASSIVE),
        client(asking, listen(), client_events) {}

  std::uint16_t listen() const {
    REQUIRE(rdma_listen(listener.id, 0) == 0);
    return port_of(listener.id);
  }

  event_source server_events;
  event_source client_events;
  one_end listener;
  one_end client;
};

int mask_towards(rdma_cm_id* id, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  REQUIRE(rdma_init_qp_attr(id, &attributes, &mask) == 0);
  return mask;
}

int send_inline(rdma_cm_id* id, const std::array<char, 16>& text, std::uint32_t shared_queue) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(text.data()), std::uint32_t{16}, 0};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  request.qp_type.xrc.remote_srqn = shared_queue;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(id->qp, &request, &bad);
}

constexpr std::array<char, 16> message_text{"fifteen letters"};

}  // namespace

// This test works in the same way as the programs rdma_xserver and rdma_xclient in rdma-core.
TEST_CASE("cm: XRC: one end sends to the shared receive queue whose number it has received") {
  one_end listener;
  {
    rdma_addrinfo* const here = look_up(0, RAI_PASSIVE, RDMA_PS_IB, IBV_QPT_XRC_RECV);
    ibv_qp_init_attr served = one_end::queue_pair(IBV_QPT_XRC_RECV);
    REQUIRE(rdma_create_ep(&listener.id, here, nullptr, &served) == 0);
    rdma_freeaddrinfo(here);
  }
  REQUIRE(rdma_listen(listener.id, 4) == 0);
  std::array<char, 16> got{};
  ibv_wc received{};
  std::atomic<bool> failed = false;
  std::thread server([&] {
    one_end accepted;
    if (rdma_get_request(listener.id, &accepted.id) != 0 || accepted.create_shared() != 0) {
      failed = true;
      return;
    }
    std::uint32_t number = 0;
    ibv_get_srq_num(accepted.id->srq, &number);
    ibv_mr* const region = rdma_reg_msgs(accepted.id, got.data(), got.size());
    rdma_conn_param answer = parameters_with(&number, sizeof(number));
    failed = region == nullptr ||
             rdma_post_recv(accepted.id, nullptr, got.data(), got.size(), region) != 0 ||
             rdma_accept(accepted.id, &answer) != 0 ||
             rdma_get_recv_comp(accepted.id, &received) != 1 || rdma_disconnect(accepted.id) != 0;
    rdma_dereg_mr(region);
  });
  {
    const one_end client(IBV_QPT_XRC_SEND, port_of(listener.id));
    CHECK(rdma_connect(client.id, nullptr) == 0);
    REQUIRE(client.id->event != nullptr);
    std::uint32_t number = 0;
    std::memcpy(&number, client.id->event->param.conn.private_data, sizeof(number));
    CHECK(send_inline(client.id, message_text, number) == 0);
    ibv_wc sent{};
    CHECK(rdma_get_send_comp(client.id, &sent) == 1);
    CHECK(sent.status == IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(client.id) == 0);
  }
  server.join();
  CHECK_FALSE(failed);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == message_text.size());
  CHECK(got == message_text);
}

TEST_CASE("cm: XRC: each end exchanges only the parameters that concern it") {
  asking_and_listening ends(IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND);
  rdma_cm_id* const client = ends.client.id;
  rdma_conn_param asked = parameters_with();
  asked.responder_resources = 3;
  asked.initiator_depth = 2;
  asked.retry_count = 5;
  asked.rnr_retry_count = 6;
  REQUIRE(rdma_connect(client, &asked) == 0);

  const rdma_cm_event* event = ends.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  const one_end server(event->id);
  CHECK(server.id->qp_type == IBV_QPT_XRC_RECV);
  const rdma_conn_param& request = event->param.conn;
  CHECK(request.qp_num == client->qp->qp_num);
  CHECK(request.responder_resources == 2);
  CHECK(request.initiator_depth == 0);
  CHECK(request.retry_count == 0);
  CHECK(request.rnr_retry_count == 0);
  CHECK(request.srq == 0);

  REQUIRE(server.create_queue_pair() == 0);
  rdma_conn_param answer = parameters_with();
  answer.responder_resources = 2;
  answer.initiator_depth = 1;
  answer.rnr_retry_count = 4;
  REQUIRE(rdma_accept(server.id, &answer) == 0);
  const rdma_conn_param& reply = ends.client_events.next(RDMA_CM_EVENT_ESTABLISHED)->param.conn;
  ends.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
  CHECK(reply.qp_num == server.id->qp->qp_num);
  CHECK(reply.responder_resources == 0);
  CHECK(reply.initiator_depth == 2);
  CHECK(reply.srq == 1);

  const ibv_qp_attr sends = attributes_of(client->qp);
  CHECK(sends.qp_state == IBV_QPS_RTS);
  CHECK(sends.dest_qp_num == server.id->qp->qp_num);
  CHECK(sends.max_rd_atomic == 2);
  CHECK(sends.retry_cnt == 5);
  CHECK(sends.rnr_retry == 4);
  const ibv_qp_attr receives = attributes_of(server.id->qp);
  CHECK(receives.qp_state == IBV_QPS_RTS);
  CHECK(receives.dest_qp_num == client->qp->qp_num);
  CHECK(receives.max_dest_rd_atomic == 2);
  CHECK((receives.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);

  constexpr int to_rtr =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  CHECK(mask_towards(client, IBV_QPS_RTR) == to_rtr);
  CHECK(mask_towards(client, IBV_QPS_RTS) ==
        (to_rts | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  CHECK(mask_towards(server.id, IBV_QPS_RTR) ==
        (to_rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  CHECK(mask_towards(server.id, IBV_QPS_RTS) == to_rts);
}

TEST_CASE("cm: a listener gets only the requests for its service") {
  const auto [listening, asking, type, status] =
      GENERATE(table<ibv_qp_type, ibv_qp_type, rdma_cm_event_type, int>(
          {{IBV_QPT_RC, IBV_QPT_XRC_SEND, RDMA_CM_EVENT_REJECTED, 28},
           {IBV_QPT_XRC_RECV, IBV_QPT_RC, RDMA_CM_EVENT_REJECTED, 28},
           {IBV_QPT_XRC_SEND, IBV_QPT_XRC_SEND, RDMA_CM_EVENT_REJECTED, 28},
           {IBV_QPT_UC, IBV_QPT_RC, RDMA_CM_EVENT_REJECTED, 28},
           {IBV_QPT_UD, IBV_QPT_RC, RDMA_CM_EVENT_REJECTED, 28},
           {IBV_QPT_RC, IBV_QPT_UD, RDMA_CM_EVENT_UNREACHABLE, 2}}));
  CAPTURE(listening, asking);
  asking_and_listening ends(listening, asking);
  rdma_conn_param asked = parameters_with();
  REQUIRE(rdma_connect(ends.client.id, &asked) == 0);
  REQUIRE(::fcntl(ends.server_events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_cm_event* none = nullptr;
  CHECK(rdma_get_cm_event(ends.server_events.channel, &none) == -1);
  CHECK(ends.client_events.next(type)->status == status);
}

TEST_CASE("cm: XRC: a receiving end can't connect") {
  asking_and_listening ends(IBV_QPT_XRC_RECV, IBV_QPT_XRC_RECV);
  CHECK(ends.client.id->qp != nullptr);
  rdma_conn_param asked = parameters_with();
  CHECK(rdma_connect(ends.client.id, &asked) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE(
    "cm: XRC: creating a shared receive queue creates the objects that the program did not pass") {
  event_source events;
  const one_end end(IBV_QPT_XRC_RECV, 0, events, RAI_PASSIVE);
  rdma_cm_id* const id = end.id;
  SECTION("the shared receive queue is created before the queue pair and outlives it") {
    REQUIRE(end.create_shared() == 0);
    ibv_cq* const queue = id->recv_cq;
    REQUIRE(queue != nullptr);
    CHECK(id->recv_cq_channel == queue->channel);
    CHECK(number_of(id->srq) != 0);
    REQUIRE(end.create_queue_pair() == 0);
    CHECK(id->recv_cq == queue);
    rdma_destroy_qp(id);
    CHECK(id->recv_cq == queue);
    rdma_destroy_srq(id);
    CHECK(id->recv_cq == nullptr);
    CHECK(id->recv_cq_channel == nullptr);
  }
  SECTION("the shared receive queue is created after the queue pair and needs more completions") {
    REQUIRE(end.create_queue_pair() == 0);
    ibv_cq* const queue = id->recv_cq;
    REQUIRE(queue != nullptr);
    const auto receives = static_cast<std::uint32_t>(queue->cqe) + 1;
    REQUIRE(end.create_shared(receives) == 0);
    CHECK(id->recv_cq == queue);
    CHECK(static_cast<std::uint32_t>(queue->cqe) >= receives);
  }
  SECTION("the shared receive queue is created after the queue pair and fits its completions") {
    REQUIRE(end.create_queue_pair() == 0);
    const auto receives = static_cast<std::uint32_t>(id->recv_cq->cqe);
    REQUIRE(softverbs_inject("ibv_resize_cq=ENOMEM") == 0);
    CHECK(end.create_shared(receives) == 0);
    CHECK(end.id->srq != nullptr);
    softverbs_reset_faults();
  }
  SECTION("the program passes its own domain and completion queue") {
    ibv_xrcd* const domain = open_domain(id->verbs, -1, O_CREAT);
    ibv_cq* const queue = ibv_create_cq(id->verbs, 4, nullptr, nullptr, 0);
    ibv_srq_init_attr_ex wanted{};
    wanted.attr = {4, 1, 0};
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    wanted.xrcd = domain;
    wanted.cq = queue;
    REQUIRE(rdma_create_srq_ex(id, &wanted) == 0);
    CHECK(id->recv_cq == nullptr);
    ibv_qp_init_attr_ex target{};
    target.qp_type = IBV_QPT_XRC_RECV;
    target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    target.xrcd = domain;
    REQUIRE(rdma_create_qp_ex(id, &target) == 0);
    CHECK(id->pd != nullptr);
    CHECK(ibv_close_xrcd(domain) == EBUSY);
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    CHECK(ibv_close_xrcd(domain) == 0);
    CHECK(ibv_destroy_cq(queue) == 0);
  }
  SECTION("a shared receive queue without room for receives is refused") {
    errno = 0;
    CHECK(end.create_shared(0) == -1);
    CHECK(errno == EINVAL);
    CHECK(id->srq == nullptr);
    CHECK(id->recv_cq == nullptr);
  }
  SECTION("a failed creation leaves nothing behind") {
    REQUIRE(softverbs_inject("ibv_create_srq=ENOMEM") == 0);
    CHECK(end.create_shared() == -1);
    CHECK(errno == ENOMEM);
    softverbs_reset_faults();
    CHECK(id->srq == nullptr);
    CHECK(id->recv_cq == nullptr);
    CHECK(id->recv_cq_channel == nullptr);
  }
}

TEST_CASE("cm: UC: messages arrive and queue pairs have no attributes for retransmission") {
  asking_and_listening ends(IBV_QPT_UC, IBV_QPT_UC);
  rdma_conn_param asked = parameters_with();
  REQUIRE(rdma_connect(ends.client.id, &asked) == 0);
  const one_end server(ends.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.create_queue_pair() == 0);
  std::array<char, 16> got{};
  ibv_mr* const region = rdma_reg_msgs(server.id, got.data(), got.size());
  REQUIRE(rdma_post_recv(server.id, nullptr, got.data(), got.size(), region) == 0);
  REQUIRE(rdma_accept(server.id, &asked) == 0);
  ends.client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  ends.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
  CHECK(mask_towards(ends.client.id, IBV_QPS_RTS) == (IBV_QP_STATE | IBV_QP_SQ_PSN));
  CHECK(send_inline(ends.client.id, message_text, 0) == 0);
  ibv_wc completion{};
  CHECK(rdma_get_send_comp(ends.client.id, &completion) == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(rdma_get_recv_comp(server.id, &completion) == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(got == message_text);
  std::uint8_t timeout = 12;
  CHECK(rdma_set_option(ends.client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                        sizeof(timeout)) == -1);
  CHECK(errno == EINVAL);
  rdma_dereg_mr(region);
}
