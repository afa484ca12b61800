// SPDX-License-Identifier: Apache-2.0
#include "support/cm_fabric.hpp"

#include "catch.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>

sockaddr_in6 ip(const char* text, std::uint16_t port) {
  sockaddr_in6 result{};
  sockaddr_in ipv4{};
  if (::inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&result, &ipv4, sizeof(ipv4));
    return result;
  }
  result.sin6_family = AF_INET6;
  result.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, text, &result.sin6_addr) == 1);
  return result;
}

sockaddr* of_c(sockaddr_in6& address) { return reinterpret_cast<sockaddr*>(&address); }

std::uint16_t port_of(rdma_cm_id* id) { return ntohs(rdma_get_src_port(id)); }

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof(text));
  else
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof(text));
  return text;
}

rdma_addrinfo* look_up(std::uint16_t port, int flags, rdma_port_space space, ibv_qp_type type) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags | RAI_NUMERICHOST;
  hints.ai_port_space = space;
  hints.ai_qp_type = type;
  rdma_addrinfo* found = nullptr;
  REQUIRE(rdma_getaddrinfo("198.18.83.1", std::to_string(port).c_str(), &hints, &found) == 0);
  return found;
}

event_source::event_source() : channel(rdma_create_event_channel()) { REQUIRE(channel != nullptr); }

event_source::~event_source() { rdma_destroy_event_channel(channel); }

bool event_source::is_readable(int milliseconds) const {
  pollfd readable{channel->fd, POLLIN, 0};
  return ::poll(&readable, 1, milliseconds) == 1;
}

bool is_silent(const event_source& events) {
  REQUIRE(::fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_cm_event* none = nullptr;
  const bool is_none = rdma_get_cm_event(events.channel, &none) == -1 && errno == EAGAIN;
  return is_none && !events.is_readable();
}

rdma_cm_event* event_source::next() {
  const auto limit = std::chrono::milliseconds(patience).count();
  if (!is_readable(static_cast<int>(limit))) FAIL("no event arrived");
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(channel, &event) == 0);
  last_ = *event;
  // Both structures in the union begin with the private data and its length.
  rdma_conn_param& told = last_.param.conn;
  const bool is_of_group =
      event->event == RDMA_CM_EVENT_MULTICAST_JOIN || event->event == RDMA_CM_EVENT_MULTICAST_ERROR;
  if (!is_of_group && told.private_data != nullptr) {
    std::memcpy(private_data_.data(), told.private_data, told.private_data_len);
    told.private_data = private_data_.data();
  }
  CHECK(rdma_ack_cm_event(event) == 0);
  return &last_;
}

rdma_cm_event* event_source::next(rdma_cm_event_type wanted) {
  rdma_cm_event* const event = next();
  INFO("got " << rdma_event_str(event->event) << ", " << event->status);
  REQUIRE(event->event == wanted);
  return event;
}

one_id::one_id(event_source& events, rdma_port_space space) {
  REQUIRE(rdma_create_id(events.channel, &id, nullptr, space) == 0);
}

void one_id::destroy() {
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  CHECK(rdma_destroy_id(std::exchange(id, nullptr)) == 0);
}

void one_id::create_queue_pair() {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = id->qp_type;
  wanted.cap = {16, 16, 2, 2, 0};
  REQUIRE(rdma_create_qp(id, nullptr, &wanted) == 0);
}

int one_id::connect(const void* data, std::size_t length) {
  if (id->qp == nullptr) create_queue_pair();
  rdma_conn_param asked = parameters_with(data, length);
  return rdma_connect(id, &asked);
}

int one_id::accept(const void* data, std::size_t length) {
  if (id->qp == nullptr) create_queue_pair();
  rdma_conn_param answer = parameters_with(data, length);
  return rdma_accept(id, &answer);
}

cm_listener::cm_listener(event_source& events, const char* address, rdma_port_space space,
                         int backlog)
    : one_id(events, space) {
  sockaddr_in6 own = ip(address);
  REQUIRE(rdma_bind_addr(id, of_c(own)) == 0);
  REQUIRE(rdma_listen(id, backlog) == 0);
}

sockaddr_in6 cm_listener::address(const char* text) const { return ip(text, port_of(id)); }

void resolve(event_source& events, one_id& client, sockaddr_in6 target) {
  REQUIRE(rdma_resolve_addr(client.id, nullptr, of_c(target), 2000) == 0);
  events.next(RDMA_CM_EVENT_ADDR_RESOLVED);
  REQUIRE(rdma_resolve_route(client.id, 2000) == 0);
  events.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

rdma_conn_param parameters_with(const void* data, std::size_t length) {
  rdma_conn_param result{};
  result.private_data = data;
  result.private_data_len = static_cast<std::uint8_t>(length);
  result.responder_resources = 1;
  result.initiator_depth = 1;
  result.retry_count = 7;
  result.rnr_retry_count = 7;
  return result;
}

cm_pair::cm_pair(const char* address) : listener(server_events, address), client(client_events) {
  resolve(client_events, client, listener.address(address));
  REQUIRE(client.connect() == 0);
  server.id = server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  REQUIRE(server.accept() == 0);
  client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  server_events.next(RDMA_CM_EVENT_ESTABLISHED);
}
