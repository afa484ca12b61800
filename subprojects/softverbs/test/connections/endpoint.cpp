// SPDX-License-Identifier: Apache-2.0
// Identifiers without an event channel, whose calls block until they complete, and the queues of
// queue pairs.
#include "catch.hpp"
#include "support/cm_fabric.hpp"

#include <rdma/rdma_verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

namespace {

ibv_qp_init_attr queue_pair() {
  ibv_qp_init_attr wanted{};
  wanted.cap = {16, 16, 2, 2, 0};
  wanted.sq_sig_all = 1;
  return wanted;
}

}  // namespace

TEST_CASE("cm: endpoints connect, exchange messages and disconnect with blocking calls") {
  rdma_addrinfo* const here = look_up(0, RAI_PASSIVE);
  ibv_qp_init_attr served = queue_pair();
  rdma_cm_id* listener = nullptr;
  REQUIRE(rdma_create_ep(&listener, here, nullptr, &served) == 0);
  rdma_freeaddrinfo(here);
  REQUIRE(rdma_listen(listener, 4) == 0);
  std::array<char, 32> got{};
  std::atomic<bool> failed = false;
  std::thread server([&] {
    rdma_cm_id* id = nullptr;
    ibv_wc completion{};
    if (rdma_get_request(listener, &id) != 0) {
      failed = true;
      return;
    }
    ibv_mr* const region = rdma_reg_msgs(id, got.data(), got.size());
    failed = id->event == nullptr || id->qp == nullptr || region == nullptr ||
             rdma_post_recv(id, nullptr, got.data(), got.size(), region) != 0 ||
             rdma_accept(id, nullptr) != 0 || rdma_get_recv_comp(id, &completion) != 1 ||
             completion.status != IBV_WC_SUCCESS || rdma_disconnect(id) != 0;
    rdma_dereg_mr(region);
    rdma_destroy_ep(id);
  });
  rdma_addrinfo* const there = look_up(port_of(listener), 0);
  ibv_qp_init_attr wanted = queue_pair();
  rdma_cm_id* client = nullptr;
  REQUIRE(rdma_create_ep(&client, there, nullptr, &wanted) == 0);
  rdma_freeaddrinfo(there);
  CHECK(rdma_connect(client, nullptr) == 0);
  std::array<char, 32> given{"hello"};
  ibv_mr* const region = rdma_reg_msgs(client, given.data(), given.size());
  CHECK(rdma_post_send(client, nullptr, given.data(), given.size(), region, 0) == 0);
  ibv_wc completion{};
  CHECK(rdma_get_send_comp(client, &completion) == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(rdma_disconnect(client) == 0);
  server.join();
  CHECK_FALSE(failed);
  rdma_dereg_mr(region);
  rdma_destroy_ep(client);
  rdma_destroy_ep(listener);
  CHECK(got == given);
}

TEST_CASE("cm: a blocking call fails with the errno of the event") {
  rdma_addrinfo* const there = look_up(1, 0);
  ibv_qp_init_attr wanted = queue_pair();
  rdma_cm_id* client = nullptr;
  REQUIRE(rdma_create_ep(&client, there, nullptr, &wanted) == 0);
  CHECK(rdma_connect(client, nullptr) == -1);
  CHECK(errno == ECONNREFUSED);
  rdma_cm_id* none = nullptr;
  event_source events;
  one_id with_channel(events);
  CHECK(rdma_get_request(with_channel.id, &none) == -1);
  CHECK(errno == EINVAL);
  rdma_destroy_ep(client);
  rdma_freeaddrinfo(there);
  sockaddr_in6 nowhere = ip("192.0.2.1", 1);
  rdma_cm_id* failed = nullptr;
  CHECK(rdma_create_id(nullptr, &failed, nullptr, RDMA_PS_TCP) == 0);
  CHECK(rdma_resolve_addr(failed, nullptr, of_c(nowhere), 100) == -1);
  CHECK(errno == ENODEV);
  CHECK(rdma_destroy_id(failed) == 0);
}

TEST_CASE("cm: an identifier moves from its own channel to another and back") {
  rdma_cm_id* id = nullptr;
  REQUIRE(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0);
  CHECK(rdma_migrate_id(id, nullptr) == -1);
  CHECK(errno == EINVAL);
  event_source events;
  REQUIRE(rdma_migrate_id(id, events.channel) == 0);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id, nullptr, of_c(target), 2000) == 0);
  events.next(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_migrate_id(id, nullptr) == 0);
  CHECK(rdma_resolve_route(id, 2000) == 0);
  CHECK(rdma_destroy_id(id) == 0);
}

TEST_CASE("cm: a queue pair uses the queues that it is given or creates its own") {
  event_source events;
  one_id id(events);
  ibv_qp_init_attr wanted = queue_pair();
  wanted.qp_type = IBV_QPT_RC;
  CHECK(rdma_create_qp(id.id, nullptr, &wanted) == -1);
  CHECK(errno == EINVAL);
  sockaddr_in6 own = ip("198.18.83.1");
  REQUIRE(rdma_bind_addr(id.id, of_c(own)) == 0);
  SECTION("the queue pair uses given queues") {
    ibv_cq* const queue = ibv_create_cq(id.id->verbs, 16, nullptr, nullptr, 0);
    wanted.send_cq = wanted.recv_cq = queue;
    REQUIRE(rdma_create_qp(id.id, nullptr, &wanted) == 0);
    CHECK(id.id->send_cq == nullptr);
    CHECK(id.id->qp->send_cq == queue);
    CHECK(rdma_create_qp(id.id, nullptr, &wanted) == -1);
    rdma_destroy_qp(id.id);
    CHECK(ibv_destroy_cq(queue) == 0);
  }
  SECTION("the queue pair creates its own queues") {
    REQUIRE(rdma_create_qp(id.id, nullptr, &wanted) == 0);
    CHECK(id.id->qp->send_cq == id.id->send_cq);
    CHECK(id.id->send_cq_channel != nullptr);
    CHECK(wanted.send_cq == id.id->send_cq);
    rdma_destroy_qp(id.id);
    CHECK(id.id->send_cq == nullptr);
    CHECK(id.id->recv_cq_channel == nullptr);
  }
  SECTION("the queue pair uses a shared receive queue") {
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = 5;
    shared.attr.max_sge = 1;
    REQUIRE(rdma_create_srq(id.id, nullptr, &shared) == 0);
    // The call has stored the attributes that were granted.
    ibv_srq_attr granted{};
    REQUIRE(ibv_query_srq(id.id->srq, &granted) == 0);
    CHECK(shared.attr.max_wr == granted.max_wr);
    CHECK(shared.attr.max_sge == granted.max_sge);
    REQUIRE(rdma_create_qp(id.id, nullptr, &wanted) == 0);
    CHECK(id.id->qp->srq == id.id->srq);
    rdma_destroy_qp(id.id);
    rdma_destroy_srq(id.id);
    CHECK(id.id->srq == nullptr);
  }
  SECTION("a protection domain of another device is refused") {
    open_context other("soft1");
    ibv_pd* const domain = ibv_alloc_pd(other.verbs);
    CHECK(rdma_create_qp(id.id, domain, &wanted) == -1);
    CHECK(errno == EINVAL);
    ibv_dealloc_pd(domain);
  }
}
