// SPDX-License-Identifier: Apache-2.0
// Reliable connections by IP address (connecting, accepting, rejecting and disconnecting), and
// event channels.
#include "catch.hpp"
#include "support/cm_fabric.hpp"
#include "support/waiting_call.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <rdma/rdma_verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// A client that has resolved its route, and the listener of a server.
struct asking {
  asking() : asking("198.18.83.1") {}
  explicit asking(const char* at, int backlog = 0, rdma_port_space space = RDMA_PS_TCP)
      : listener(server_events, at, space, backlog), client(client_events, space) {
    resolve(client_events, client, listener.address(at));
  }
  int connect(const void* data = nullptr, std::size_t length = 0) {
    return client.connect(data, length);
  }

  event_source client_events;
  event_source server_events;
  cm_listener listener;
  one_id client;
};

bool holds(const void* data, std::uint8_t length, const char* text, std::size_t room) {
  const auto* const bytes = static_cast<const char*>(data);
  return length == room && std::strcmp(bytes, text) == 0 &&
         std::all_of(bytes + std::strlen(text), bytes + length, [](char c) { return c == 0; });
}

/// Polls for events at the connecting end until there is an event at the other end. The connecting
/// end retries only when its program polls.
void look_until_readable(event_source& asking, event_source& answering) {
  REQUIRE(::fcntl(asking.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (!answering.is_readable(10)) {
    rdma_cm_event* none = nullptr;
    REQUIRE(rdma_get_cm_event(asking.channel, &none) == -1);
    REQUIRE(errno == EAGAIN);
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

void wait_for(ibv_cq* queue) {
  ibv_wc completion{};
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (ibv_poll_cq(queue, 1, &completion) == 0)
    if (std::chrono::steady_clock::now() > limit) FAIL("no completion arrived in time");
  CHECK(completion.status == IBV_WC_SUCCESS);
}

void check_message(rdma_cm_id* from, rdma_cm_id* to) {
  std::array<char, 64> outbox{"a message"};
  std::array<char, 64> inbox{};
  ibv_mr* const out = rdma_reg_msgs(from, outbox.data(), outbox.size());
  ibv_mr* const in = rdma_reg_msgs(to, inbox.data(), inbox.size());
  REQUIRE(out != nullptr);
  REQUIRE(in != nullptr);
  REQUIRE(rdma_post_recv(to, nullptr, inbox.data(), inbox.size(), in) == 0);
  REQUIRE(rdma_post_send(from, nullptr, outbox.data(), outbox.size(), out, IBV_SEND_SIGNALED) == 0);
  wait_for(to->recv_cq);
  wait_for(from->send_cq);
  CHECK(inbox == outbox);
  rdma_dereg_mr(out);
  rdma_dereg_mr(in);
}

}  // namespace

TEST_CASE("cm: a connection carries messages both ways") {
  cm_pair pair(GENERATE("198.18.83.1", "198.18.83.2", "fd73:6f66:7476::1", "127.0.0.1", "::1"));
  CHECK(attributes_of(pair.client.id->qp).qp_state == IBV_QPS_RTS);
  check_message(pair.client.id, pair.server.id);
  check_message(pair.server.id, pair.client.id);
  CHECK(text_of(rdma_get_peer_addr(pair.server.id)) ==
        text_of(rdma_get_local_addr(pair.client.id)));
  CHECK(rdma_get_dst_port(pair.server.id) == rdma_get_src_port(pair.client.id));
  CHECK(rdma_get_src_port(pair.server.id) == rdma_get_src_port(pair.listener.id));
}

TEST_CASE("cm: a request to a listener on all addresses has the device of the requested address") {
  event_source server_events;
  event_source client_events;
  const auto [all, one, device] = GENERATE(table<const char*, const char*, const char*>({
      {"0.0.0.0", "198.18.83.2", "soft1"},
      {"0.0.0.0", "127.0.0.1", "soft0"},
      {"::", "198.18.83.1", "soft0"},
      {"::", "fd73:6f66:7476::2", "soft1"},
  }));
  cm_listener listener(server_events, all);
  one_id client(client_events);
  resolve(client_events, client, listener.address(one));
  REQUIRE(client.connect() == 0);
  const rdma_cm_event* const event = server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(event->listen_id == listener.id);
  const one_id server(event->id);
  CHECK(std::string(server.id->verbs->device->name) == device);
  CHECK(text_of(rdma_get_local_addr(server.id)) == one);
}

TEST_CASE("cm: a server gets the events of a host in the order in which they were caused") {
  asking first;
  one_id second(first.client_events);
  one_id third(first.client_events);
  resolve(first.client_events, second, first.listener.address());
  resolve(first.client_events, third, first.listener.address());
  REQUIRE(first.connect() == 0);
  one_id server(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.accept() == 0);
  first.client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  REQUIRE(second.connect() == 0);
  SECTION("a connection is established before the next request") {
    first.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
    const one_id next(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  }
  SECTION("a connection ends between two requests") {
    REQUIRE(rdma_disconnect(first.client.id) == 0);
    REQUIRE(third.connect() == 0);
    first.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
    const one_id next(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
    CHECK(first.server_events.next(RDMA_CM_EVENT_DISCONNECTED)->id == server.id);
    const one_id last(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  }
}

TEST_CASE("cm: two listeners of a channel get their requests in order") {
  asking first;
  const cm_listener other(first.server_events);
  one_id to_other(first.client_events);
  one_id again(first.client_events);
  resolve(first.client_events, to_other, other.address());
  resolve(first.client_events, again, first.listener.address());
  const auto is_asked = [&](rdma_cm_id* listener) {
    const rdma_cm_event* const event = first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    const one_id server(event->id);
    CHECK(event->listen_id == listener);
  };
  REQUIRE(first.connect() == 0);
  is_asked(first.listener.id);
  REQUIRE(to_other.connect() == 0);
  REQUIRE(again.connect() == 0);
  is_asked(other.id);
  is_asked(first.listener.id);
}

TEST_CASE("cm: private data is padded with zeros to the size of its field") {
  asking both;
  REQUIRE(both.connect("question", 9) == 0);
  const rdma_cm_event* event = both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  const rdma_conn_param& asked = event->param.conn;
  CHECK(holds(asked.private_data, asked.private_data_len, "question", 56));
  CHECK(asked.qp_num == both.client.id->qp->qp_num);
  CHECK(asked.responder_resources == 1);
  CHECK(asked.retry_count == 7);
  one_id server(event->id);
  SECTION("private data of an acceptance") {
    REQUIRE(server.accept("answer", 7) == 0);
    const rdma_conn_param& told = both.client_events.next(RDMA_CM_EVENT_ESTABLISHED)->param.conn;
    CHECK(holds(told.private_data, told.private_data_len, "answer", 196));
    CHECK(told.qp_num == server.id->qp->qp_num);
  }
  SECTION("private data of a rejection") {
    REQUIRE(rdma_reject(server.id, "no", 3) == 0);
    event = both.client_events.next(RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 28);
    CHECK(holds(event->param.conn.private_data, event->param.conn.private_data_len, "no", 148));
    CHECK(attributes_of(both.client.id->qp).qp_state == IBV_QPS_ERR);
  }
  SECTION("a rejection because of vendor options") {
    REQUIRE(rdma_reject_ece(server.id, nullptr, 0) == 0);
    CHECK(both.client_events.next(RDMA_CM_EVENT_REJECTED)->status == 35);
  }
}

TEST_CASE("cm: private data that exceeds its field is refused") {
  asking both;
  const std::array<char, 255> data{};
  CHECK(both.connect(data.data(), 57) == -1);
  CHECK(errno == EINVAL);
  REQUIRE(both.connect(data.data(), 56) == 0);
  one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  CHECK(rdma_reject(server.id, data.data(), 149) == -1);
  CHECK(server.accept(data.data(), 197) == -1);
  CHECK(server.accept(data.data(), 196) == 0);
}

TEST_CASE("cm: a read depth above the device's limit is refused") {
  asking both;
  both.client.create_queue_pair();
  rdma_conn_param asked = parameters_with();
  asked.initiator_depth = 17;
  CHECK(rdma_connect(both.client.id, &asked) == -1);
  CHECK(errno == EINVAL);
  asked.initiator_depth = RDMA_MAX_INIT_DEPTH;
  CHECK(rdma_connect(both.client.id, &asked) == 0);
  const rdma_cm_event* const event = both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(event->param.conn.responder_resources == 16);
  const one_id server(event->id);
}

TEST_CASE("cm: a missing listener is reported with InfiniBand's reason") {
  event_source events;
  one_id silent(events);
  sockaddr_in6 address = ip("198.18.83.1");
  REQUIRE(rdma_bind_addr(silent.id, of_c(address)) == 0);
  one_id client(events);
  resolve(events, client, ip("198.18.83.1", port_of(silent.id)));
  REQUIRE(client.connect() == 0);
  CHECK(events.next(RDMA_CM_EVENT_REJECTED)->status == 8);
}

TEST_CASE("cm: a client that connects between two listeners on one address reaches the second") {
  event_source client_events;
  event_source server_events;
  cm_listener first(server_events);
  sockaddr_in6 address = first.address();
  first.destroy();
  one_id client(client_events);
  resolve(client_events, client, address);
  REQUIRE(client.connect() == 0);
  one_id second(server_events);
  REQUIRE(rdma_bind_addr(second.id, of_c(address)) == 0);
  REQUIRE(rdma_listen(second.id, 1) == 0);
  look_until_readable(client_events, server_events);
  const one_id server(server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
}

TEST_CASE("cm: a request waits while the backlog is full") {
  asking first("198.18.83.1", 1);
  REQUIRE(first.connect() == 0);
  event_source events;
  one_id second(events);
  resolve(events, second, first.listener.address());
  REQUIRE(second.connect() == 0);
  const one_id one(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  CHECK_FALSE(first.server_events.is_readable());
  look_until_readable(events, first.server_events);
  const one_id two(first.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
}

TEST_CASE("cm: destroying the identifier of a pending request rejects it") {
  asking both;
  REQUIRE(both.connect() == 0);
  SECTION("the identifier of the request is destroyed") {
    one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
    server.destroy();
  }
  SECTION("the listener is destroyed before its program polls") { both.listener.destroy(); }
  CHECK(both.client_events.next(RDMA_CM_EVENT_REJECTED)->status == 28);
}

TEST_CASE("cm: a request whose client was destroyed can't be accepted, and has no further event") {
  asking both;
  REQUIRE(both.connect() == 0);
  one_id server(nullptr);
  SECTION("the program receives the request before the client is destroyed") {
    server.id = both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    both.client.destroy();
    // The identifier has the listener's context until the program sets another one, so an event
    // would reach the listener's code.
    CHECK(is_silent(both.server_events));
  }
  SECTION("the program receives the request after the client is destroyed") {
    both.client.destroy();
    server.id = both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  }
  CHECK(server.accept() == -1);
  CHECK(errno == EINVAL);
  CHECK(rdma_reject(server.id, nullptr, 0) == -1);
  CHECK(is_silent(both.server_events));
}

TEST_CASE(
    "cm: a server is notified that the accepted client was destroyed before it was connected") {
  asking both;
  REQUIRE(both.connect() == 0);
  one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.accept() == 0);
  both.client.destroy();
  CHECK(both.server_events.next(RDMA_CM_EVENT_REJECTED)->status == 28);
}

TEST_CASE("cm: no peer can be reached through a port that is down") {
  asking both;
  REQUIRE(softverbs_inject("port-down@soft0") == 0);
  REQUIRE(both.connect() == 0);
  CHECK(both.client_events.next(RDMA_CM_EVENT_UNREACHABLE)->status == -ETIMEDOUT);
  softverbs_reset_faults();
}

TEST_CASE("cm: a queue pair that can't be set up ends the connection at both ends") {
  asking both;
  REQUIRE(both.connect() == 0);
  one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.accept() == 0);
  REQUIRE(softverbs_inject("ibv_modify_qp:2=EINVAL") == 0);
  CHECK(both.client_events.next(RDMA_CM_EVENT_CONNECT_ERROR)->status == -EINVAL);
  softverbs_reset_faults();
  CHECK(both.server_events.next(RDMA_CM_EVENT_REJECTED)->status == 28);
}

TEST_CASE("cm: both ends get DISCONNECTED and TIMEWAIT_EXIT whichever end disconnects") {
  cm_pair pair;
  const bool client_is_first = GENERATE(true, false);
  one_id& first = client_is_first ? pair.client : pair.server;
  event_source& first_events = client_is_first ? pair.client_events : pair.server_events;
  event_source& other_events = client_is_first ? pair.server_events : pair.client_events;
  one_id& other = client_is_first ? pair.server : pair.client;
  REQUIRE(rdma_disconnect(first.id) == 0);
  CHECK(attributes_of(first.id->qp).qp_state == IBV_QPS_ERR);
  CHECK(other_events.next(RDMA_CM_EVENT_DISCONNECTED)->id == other.id);
  CHECK(rdma_disconnect(other.id) == 0);
  CHECK(first_events.next(RDMA_CM_EVENT_DISCONNECTED)->id == first.id);
  CHECK(first_events.next(RDMA_CM_EVENT_TIMEWAIT_EXIT)->id == first.id);
  CHECK(other_events.next(RDMA_CM_EVENT_TIMEWAIT_EXIT)->id == other.id);
}

TEST_CASE("cm: both ends may disconnect at the same time") {
  cm_pair pair;
  REQUIRE(rdma_disconnect(pair.client.id) == 0);
  REQUIRE(rdma_disconnect(pair.server.id) == 0);
  pair.client_events.next(RDMA_CM_EVENT_DISCONNECTED);
  pair.server_events.next(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("cm: destroying an identifier disconnects it") {
  cm_pair pair;
  pair.client.destroy();
  CHECK(pair.server_events.next(RDMA_CM_EVENT_DISCONNECTED)->status == 0);
}

TEST_CASE("cm: a program that sets up its queue pair establishes the connection itself") {
  asking both;
  ibv_cq* const queue = ibv_create_cq(both.client.id->verbs, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr wanted = pair_with(queue, {1, 1, 1, 1, 0});
  ibv_qp* const own = ibv_create_qp(both.client.id->pd, &wanted);
  REQUIRE(own != nullptr);
  rdma_conn_param asked = parameters_with();
  asked.qp_num = own->qp_num;
  REQUIRE(rdma_connect(both.client.id, &asked) == 0);
  one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  server.create_queue_pair();
  REQUIRE(rdma_accept(server.id, &asked) == 0);
  both.client_events.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = next;
    REQUIRE(rdma_init_qp_attr(both.client.id, &attributes, &mask) == 0);
    REQUIRE(ibv_modify_qp(own, &attributes, mask) == 0);
  }
  SECTION("the program calls rdma_establish") {
    REQUIRE(rdma_establish(both.client.id) == 0);
    both.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_establish(both.client.id) == -1);
    CHECK(rdma_notify(server.id, IBV_EVENT_COMM_EST) == -1);
    CHECK(errno == EISCONN);
  }
  SECTION("the other end reports a message before the program calls rdma_establish") {
    REQUIRE(rdma_notify(server.id, IBV_EVENT_COMM_EST) == 0);
    both.server_events.next(RDMA_CM_EVENT_ESTABLISHED);
    REQUIRE(rdma_establish(both.client.id) == 0);
    REQUIRE(::fcntl(both.server_events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    rdma_cm_event* none = nullptr;
    CHECK(rdma_get_cm_event(both.server_events.channel, &none) == -1);
    CHECK(errno == EAGAIN);
  }
  ibv_destroy_qp(own);
  ibv_destroy_cq(queue);
}

TEST_CASE("cm: queue pairs have the negotiated attributes") {
  asking both;
  std::uint8_t service = 0x20;
  std::uint8_t timeout = 19;
  REQUIRE(rdma_set_option(both.client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &service, 1) == 0);
  REQUIRE(rdma_set_option(both.client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                          1) == 0);
  both.client.create_queue_pair();
  rdma_conn_param asked = parameters_with();
  asked.responder_resources = 3;
  asked.initiator_depth = 5;
  asked.retry_count = 4;
  asked.rnr_retry_count = 2;
  REQUIRE(rdma_connect(both.client.id, &asked) == 0);
  const rdma_cm_event* const event = both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(event->param.conn.responder_resources == 5);
  CHECK(event->param.conn.initiator_depth == 3);
  one_id server(event->id);
  server.create_queue_pair();
  rdma_conn_param answer = parameters_with();
  answer.responder_resources = 5;
  answer.initiator_depth = 2;
  answer.rnr_retry_count = 6;
  REQUIRE(rdma_accept(server.id, &answer) == 0);
  both.client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  constexpr int everything = IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
  ibv_qp_attr have = attributes_of(both.client.id->qp, everything);
  CHECK(have.ah_attr.grh.traffic_class == 0x20);
  CHECK(have.timeout == 19);
  CHECK(have.retry_cnt == 4);
  CHECK(have.rnr_retry == 6);
  CHECK(have.max_rd_atomic == 5);
  CHECK(have.max_dest_rd_atomic == 2);
  have = attributes_of(server.id->qp, everything);
  CHECK(have.retry_cnt == 4);
  CHECK(have.rnr_retry == 2);
  CHECK(have.max_rd_atomic == 2);
  CHECK(have.max_dest_rd_atomic == 5);
}

TEST_CASE("cm: the connection of an identifier moves with it to another channel") {
  cm_pair pair;
  event_source other;
  REQUIRE(rdma_migrate_id(pair.server.id, other.channel) == 0);
  pair.client.destroy();
  other.next(RDMA_CM_EVENT_DISCONNECTED);
  CHECK_FALSE(pair.server_events.is_readable());
  pair.server.destroy();
}

TEST_CASE("cm: a request that the program has not received moves with its listener") {
  auto before = std::make_unique<event_source>();
  event_source after;
  event_source client_events;
  cm_listener listener(*before);
  one_id client(client_events);
  resolve(client_events, client, listener.address());
  one_id another(*before);
  sockaddr_in6 target = listener.address();
  REQUIRE(rdma_resolve_addr(another.id, nullptr, of_c(target), 2000) == 0);
  REQUIRE(client.connect() == 0);
  // The channel reads the request, too, but returns this earlier event.
  before->next(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_migrate_id(listener.id, after.channel) == 0);
  CHECK_FALSE(before->is_readable());
  one_id server(after.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.id->channel == after.channel);
  another.destroy();
  before.reset();
  REQUIRE(server.accept() == 0);
  client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  after.next(RDMA_CM_EVENT_ESTABLISHED);
}

TEST_CASE("cm: the backlog of a listener that moves with a request stays limited") {
  event_source before;
  event_source after;
  event_source client_events;
  cm_listener listener(before, "198.18.83.1", RDMA_PS_TCP, 1);
  one_id first(client_events);
  one_id second(client_events);
  one_id third(client_events);
  for (one_id* each : {&first, &second, &third}) resolve(client_events, *each, listener.address());
  one_id another(before);
  sockaddr_in6 target = listener.address();
  REQUIRE(rdma_resolve_addr(another.id, nullptr, of_c(target), 2000) == 0);
  REQUIRE(first.connect() == 0);
  // The channel reads the request, too, but returns this earlier event.
  before.next(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(second.connect() == 0);
  REQUIRE(rdma_migrate_id(listener.id, after.channel) == 0);
  const one_id one(after.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  // The second client fills the backlog.
  REQUIRE(third.connect() == 0);
  const one_id two(after.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  CHECK_FALSE(after.is_readable());
}

TEST_CASE("cm: moving an identifier doesn't wait for the events of its new channel") {
  event_source before;
  event_source after;
  one_id id(before);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  REQUIRE(rdma_resolve_route(id.id, 2000) == 0);
  rdma_cm_event* first = nullptr;
  REQUIRE(rdma_get_cm_event(before.channel, &first) == 0);
  std::atomic<bool> moved = false;
  std::thread mover([&] { moved = rdma_migrate_id(id.id, after.channel) == 0; });
  rdma_cm_event* second = nullptr;
  CHECK(rdma_get_cm_event(after.channel, &second) == 0);
  CHECK(second->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK_FALSE(moved);
  CHECK(rdma_ack_cm_event(first) == 0);
  CHECK(eventually([&] { return moved.load(); }));
  CHECK(rdma_ack_cm_event(second) == 0);
  mover.join();
}

TEST_CASE("cm: vendor options are transmitted to the peer") {
  asking both;
  ibv_ece options{0x1234, 7, 0};
  REQUIRE(rdma_set_local_ece(both.client.id, &options) == 0);
  REQUIRE(both.connect() == 0);
  one_id server(both.server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  ibv_ece told{};
  REQUIRE(rdma_get_remote_ece(server.id, &told) == 0);
  CHECK(told.vendor_id == 0x1234);
  CHECK(told.options == 7);
  options.vendor_id = 0;
  CHECK(rdma_set_local_ece(server.id, &options) == -1);
}

TEST_CASE("cm: destroying an identifier waits until its events are acknowledged") {
  event_source events;
  one_id id(events);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(events.channel, &event) == 0);
  rdma_cm_id* const own = std::exchange(id.id, nullptr);
  CHECK(returns_only_after([&] { return rdma_destroy_id(own); },
                           [&] { CHECK(rdma_ack_cm_event(event) == 0); }) == 0);
}

TEST_CASE("cm: a call on a destroyed event channel returns EBADF only after a delay") {
  rdma_event_channel* const channel = rdma_create_event_channel();
  REQUIRE(channel != nullptr);
  rdma_destroy_event_channel(channel);
  const auto before = std::chrono::steady_clock::now();
  rdma_cm_event* none = nullptr;
  CHECK(rdma_get_cm_event(channel, &none) == -1);
  CHECK(errno == EBADF);
  CHECK(std::chrono::steady_clock::now() - before > std::chrono::milliseconds(500));
}

TEST_CASE("cm: several threads share a channel") {
  event_source server_events;
  cm_listener listener(server_events, "198.18.83.1", RDMA_PS_TCP, 64);
  constexpr int connections = 24;
  REQUIRE(::fcntl(server_events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  std::atomic<int> accepted = 0;
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::vector<std::thread> servers;
  for (int each = 0; each < 3; ++each)
    servers.emplace_back([&] {
      while (accepted < connections && std::chrono::steady_clock::now() < limit) {
        static_cast<void>(server_events.is_readable(20));
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(server_events.channel, &event) != 0) continue;
        rdma_cm_id* const id = event->id;
        const rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST && rdma_reject(id, nullptr, 0) == 0 &&
            rdma_destroy_id(id) == 0)
          ++accepted;
      }
    });
  event_source events;
  for (int each = 0; each < connections; ++each) {
    one_id client(events);
    resolve(events, client, listener.address());
    CHECK(client.connect() == 0);
    CHECK(events.next(RDMA_CM_EVENT_REJECTED)->status == 28);
  }
  for (std::thread& each : servers) each.join();
  CHECK(accepted == connections);
}
