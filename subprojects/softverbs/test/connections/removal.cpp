// SPDX-License-Identifier: Apache-2.0
// Devices that fail while connections by IP address exist or are being established.
#include "catch.hpp"
#include "support/cm_fabric.hpp"
#include "support/forked.hpp"
#include <softverbs/softverbs.h>

#include <cerrno>
#include <thread>
#include <utility>

namespace {

/// Breaks the device until `repair` is called or this object is destroyed.
struct broken_device {
  explicit broken_device(const char* fault = "device-fatal@soft0") {
    REQUIRE(softverbs_inject(fault) == 0);
  }
  broken_device(const broken_device&) = delete;
  broken_device& operator=(const broken_device&) = delete;
  ~broken_device() { repair(); }
  void repair() { softverbs_reset_faults(); }
};

constexpr const char* own_address = "198.18.83.1";
constexpr const char* other_address = "198.18.83.2";

/// A connection request that a server has received, and not answered yet.
struct received_request {
  event_source server_events{};
  cm_listener listener{server_events, "0.0.0.0"};
  event_source client_events{};
  one_id client{client_events};
  one_id server{next_request()};

 private:
  rdma_cm_id* next_request() {
    resolve(client_events, client, listener.address(own_address));
    REQUIRE(client.connect() == 0);
    return server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  }
};

}  // namespace

TEST_CASE("a device failure is reported exactly to the identifiers that are bound to the device") {
  cm_pair pair;
  event_source more_events;
  const one_id unbound(more_events);
  const cm_listener everywhere(more_events, "0.0.0.0");
  const cm_listener elsewhere(more_events, other_address);
  event_source route_events;
  one_id route(route_events);
  resolve(route_events, route, pair.listener.address(own_address));
  const broken_device broken;

  CHECK(pair.client_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id == pair.client.id);
  CHECK(route_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id == route.id);
  // The order in which these two events arrive is unspecified.
  const rdma_cm_id* const first = pair.server_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id;
  const rdma_cm_id* const second = pair.server_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id;
  CHECK(first != second);
  CHECK((first == pair.server.id || first == pair.listener.id));
  CHECK((second == pair.server.id || second == pair.listener.id));

  // Each identifier gets the event only once.
  rdma_conn_param parameters = parameters_with();
  CHECK(rdma_disconnect(pair.client.id) == -1);
  CHECK(rdma_connect(route.id, &parameters) == -1);
  for (const event_source* each :
       {&pair.client_events, &pair.server_events, &route_events, &more_events})
    CHECK(is_silent(*each));
}

TEST_CASE("a thread that waits for an event is notified of a device failure") {
  cm_pair pair;
  const broken_device broken("after:20ms=device-fatal@soft0");
  rdma_cm_event* event = nullptr;
  REQUIRE(rdma_get_cm_event(pair.client_events.channel, &event) == 0);
  CHECK(event->event == RDMA_CM_EVENT_DEVICE_REMOVAL);
  CHECK(rdma_ack_cm_event(event) == 0);
}

TEST_CASE("a failed device has no addresses until it is repaired") {
  event_source events;
  cm_listener everywhere(events, "0.0.0.0");
  event_source client_events;
  one_id on_the_way(client_events);
  resolve(client_events, on_the_way, everywhere.address(own_address));
  on_the_way.create_queue_pair();
  broken_device broken;

  one_id bound(events);
  sockaddr_in6 own = ip(own_address);
  CHECK(rdma_bind_addr(bound.id, of_c(own)) == -1);
  CHECK(errno == ENODEV);
  one_id resolved(events);
  REQUIRE(rdma_resolve_addr(resolved.id, nullptr, of_c(own), 2000) == 0);
  CHECK(events.next(RDMA_CM_EVENT_ADDR_ERROR)->status == -ENODEV);

  client_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL);
  broken.repair();
  CHECK(rdma_bind_addr(bound.id, of_c(own)) == 0);
  one_id again(client_events);
  resolve(client_events, again, everywhere.address(own_address));
  REQUIRE(again.connect() == 0);
  const one_id request(events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
}

TEST_CASE("the peer gets DISCONNECTED when the identifier on a failed device is destroyed") {
  event_source other_events;
  cm_listener there(other_events, other_address);
  event_source client_events;
  one_id client(client_events);
  // This connection goes from soft0 to soft1.
  sockaddr_in6 own = ip(own_address);
  REQUIRE(rdma_bind_addr(client.id, of_c(own)) == 0);
  resolve(client_events, client, there.address(other_address));
  REQUIRE(client.connect() == 0);
  one_id server(other_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.accept() == 0);
  client_events.next(RDMA_CM_EVENT_ESTABLISHED);
  other_events.next(RDMA_CM_EVENT_ESTABLISHED);

  broken_device broken;
  client_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL);
  CHECK(is_silent(other_events));
  broken.repair();
  client.destroy();
  other_events.next(RDMA_CM_EVENT_DISCONNECTED);
}

TEST_CASE("a failure that was repaired before the program polled is still reported") {
  cm_pair pair;
  {
    const broken_device broken;
  }
  CHECK(pair.client_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id == pair.client.id);
  CHECK(rdma_disconnect(pair.client.id) == -1);
  // Identifiers that are created after the removal do not get the event.
  event_source later_events;
  const cm_listener later(later_events);
  CHECK_FALSE(later_events.is_readable());
  CHECK(is_silent(later_events));
}

TEST_CASE("a child of fork that repairs its devices leaves its parent's devices broken") {
  cm_pair pair;
  const broken_device broken;
  const forked child([] {
    softverbs_reset_faults();
    return true;
  });
  REQUIRE(child.ended_well());
  CHECK(pair.client_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id == pair.client.id);
}

TEST_CASE("an identifier whose device has failed can't join a group") {
  event_source events;
  const cm_listener bound(events, own_address, RDMA_PS_UDP);
  broken_device broken;
  events.next(RDMA_CM_EVENT_DEVICE_REMOVAL);
  broken.repair();
  // steady: this fixed group is not joined
  sockaddr_in6 group = ip("239.83.0.1");
  CHECK(rdma_join_multicast(bound.id, of_c(group), nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK(is_silent(events));
}

TEST_CASE_METHOD(
    received_request,
    "a request that was not accepted doesn't get DEVICE_REMOVAL, and can't be accepted") {
  const broken_device broken;
  CHECK(is_silent(server_events));
  rdma_conn_param parameters = parameters_with();
  CHECK(rdma_accept(server.id, &parameters) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE_METHOD(received_request,
                 "a request that ended before it was accepted doesn't get DEVICE_REMOVAL") {
  SECTION("the program has rejected it") { REQUIRE(rdma_reject(server.id, nullptr, 0) == 0); }
  SECTION("its client was destroyed") {
    client.destroy();
    CHECK(is_silent(server_events));
  }
  const broken_device broken;
  CHECK(is_silent(server_events));
}

TEST_CASE("an accepted request for a datagram service gets DEVICE_REMOVAL") {
  event_source server_events;
  const cm_listener listener(server_events, "0.0.0.0", RDMA_PS_UDP);
  event_source client_events;
  one_id client(client_events, RDMA_PS_UDP);
  resolve(client_events, client, listener.address(own_address));
  REQUIRE(client.connect() == 0);
  one_id server(server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(server.accept() == 0);
  const broken_device broken;
  CHECK(server_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id == server.id);
}

TEST_CASE("an identifier that is being destroyed doesn't get DEVICE_REMOVAL") {
  event_source server_events;
  const cm_listener listener(server_events);
  event_source client_events;
  one_id client(client_events);
  resolve(client_events, client, listener.address());
  rdma_conn_param parameters = parameters_with();
  REQUIRE(rdma_connect(client.id, &parameters) == 0);
  one_id server(server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST)->id);
  REQUIRE(rdma_accept(server.id, &parameters) == 0);
  // Destroying the identifier waits until this event is acknowledged.
  rdma_cm_event* response = nullptr;
  REQUIRE(rdma_get_cm_event(client_events.channel, &response) == 0);
  int destroyed = -1;
  std::thread destroyer(
      [&, id = std::exchange(client.id, nullptr)] { destroyed = rdma_destroy_id(id); });
  server_events.next(RDMA_CM_EVENT_REJECTED);
  const broken_device broken;
  server_events.next(RDMA_CM_EVENT_DEVICE_REMOVAL);
  CHECK(rdma_ack_cm_event(response) == 0);
  destroyer.join();
  CHECK(destroyed == 0);
  CHECK(is_silent(client_events));
}
