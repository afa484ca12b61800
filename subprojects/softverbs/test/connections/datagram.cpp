// SPDX-License-Identifier: Apache-2.0
// Datagram services by IP address, and multicast groups.
#include "catch.hpp"
#include "support/cm_fabric.hpp"

#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

/// Sends a few bytes to a peer, and checks that they arrive.
void check_datagram(rdma_cm_id* from, rdma_cm_id* to, const rdma_ud_param& way) {
  std::array<char, 128> outbox{"a datagram"};
  std::array<char, 128> inbox{};
  ibv_mr* const out = rdma_reg_msgs(from, outbox.data(), outbox.size());
  ibv_mr* const in = rdma_reg_msgs(to, inbox.data(), inbox.size());
  REQUIRE(rdma_post_recv(to, nullptr, inbox.data(), inbox.size(), in) == 0);
  ibv_ah_attr path = way.ah_attr;
  ibv_ah* const handle = ibv_create_ah(from->pd, &path);
  REQUIRE(handle != nullptr);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(outbox.data()), 16, out->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = way.qp_num;
  request.wr.ud.remote_qkey = way.qkey;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(from->qp, &request, &bad) == 0);
  ibv_wc completion{};
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (ibv_poll_cq(to->recv_cq, 1, &completion) == 0)
    REQUIRE(std::chrono::steady_clock::now() < limit);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(std::strcmp(inbox.data() + header_bytes, "a datagram") == 0);
  ibv_destroy_ah(handle);
  rdma_dereg_mr(out);
  rdma_dereg_mr(in);
}

/// A datagram identifier that is bound to an address of a device. It has a queue pair unless
/// `has_queue_pair` is false.
struct datagram_id : one_id {
  explicit datagram_id(event_source& events, const char* address, bool has_queue_pair = true)
      : one_id(events, RDMA_PS_UDP) {
    sockaddr_in6 own = ip(address);
    REQUIRE(rdma_bind_addr(id, of_c(own)) == 0);
    if (has_queue_pair) create_queue_pair();
  }
};

}  // namespace

TEST_CASE("cm: a datagram service answers a request with its queue pair") {
  event_source server_events;
  event_source client_events;
  cm_listener listener(server_events, "198.18.83.2", RDMA_PS_UDP);
  one_id client(client_events, RDMA_PS_UDP);
  resolve(client_events, client, listener.address("198.18.83.2"));
  client.create_queue_pair();
  std::array<char, 181> data{"question"};
  rdma_conn_param asked = parameters_with(data.data(), data.size());
  CHECK(rdma_connect(client.id, &asked) == -1);
  CHECK(errno == EINVAL);
  asked.private_data_len = 180;
  REQUIRE(rdma_connect(client.id, &asked) == 0);
  const rdma_cm_event* event = server_events.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  CHECK(event->param.ud.private_data_len == 180);
  CHECK(std::strcmp(static_cast<const char*>(event->param.ud.private_data), "question") == 0);
  one_id server(event->id);
  SECTION("the service accepts") {
    REQUIRE(server.accept("answer", 7) == 0);
    event = client_events.next(RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->param.ud.private_data_len == 136);
    CHECK(event->param.ud.qp_num == server.id->qp->qp_num);
    CHECK(event->param.ud.qkey == RDMA_UDP_QKEY);
    check_datagram(client.id, server.id, event->param.ud);
    CHECK_FALSE(server_events.is_readable());
  }
  SECTION("the service rejects") {
    REQUIRE(rdma_reject(server.id, "no", 3) == 0);
    event = client_events.next(RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == 2);
    CHECK(std::strcmp(static_cast<const char*>(event->param.ud.private_data), "no") == 0);
  }
}

TEST_CASE("cm: a missing datagram service is reported by the event's status") {
  event_source events;
  one_id client(events, RDMA_PS_UDP);
  resolve(events, client, ip("198.18.83.1", 1));
  REQUIRE(client.connect() == 0);
  CHECK(events.next(RDMA_CM_EVENT_UNREACHABLE)->status == 1);
}

TEST_CASE("cm: members of a multicast group receive the datagrams that are sent to it") {
  event_source events;
  const bool is_ipv4 = GENERATE(true, false);
  // The address contains the process ID, so that tests in other processes use different groups.
  const auto process = static_cast<unsigned>(::getpid());
  std::array<char, 32> group{};
  if (is_ipv4)
    std::snprintf(group.data(), group.size(), "239.%u.%u.%u", process >> 16 & 0xff,
                  process >> 8 & 0xff, process & 0xff);
  else
    // steady: the address is unique, because it contains the process ID
    std::snprintf(group.data(), group.size(), "ff0e::%x:%x", process >> 16, process & 0xffff);
  datagram_id listener(events, is_ipv4 ? "198.18.83.1" : "fd73:6f66:7476::1");
  datagram_id sender(events, is_ipv4 ? "198.18.83.2" : "fd73:6f66:7476::2");
  sockaddr_in6 address = ip(group.data());
  int context = 0;
  REQUIRE(rdma_join_multicast(listener.id, of_c(address), &context) == 0);
  const rdma_cm_event* event = events.next(RDMA_CM_EVENT_MULTICAST_JOIN);
  CHECK(event->id == listener.id);
  CHECK(event->param.ud.private_data == &context);
  CHECK(event->param.ud.qp_num == 0xffffff);
  CHECK(event->param.ud.qkey == RDMA_UDP_QKEY);
  CHECK((event->param.ud.ah_attr.dlid == 0) == on_ethernet());

  rdma_cm_join_mc_attr_ex wanted{};
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  wanted.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  wanted.addr = of_c(address);
  REQUIRE(rdma_join_multicast_ex(sender.id, &wanted, nullptr) == 0);
  event = events.next(RDMA_CM_EVENT_MULTICAST_JOIN);
  check_datagram(sender.id, listener.id, event->param.ud);

  CHECK(rdma_leave_multicast(sender.id, of_c(address)) == 0);
  CHECK(rdma_leave_multicast(sender.id, of_c(address)) == -1);
  CHECK(errno == EADDRNOTAVAIL);
  CHECK(rdma_leave_multicast(listener.id, of_c(address)) == 0);
}

TEST_CASE("cm: a group has the GID that the kernel would give it") {
  event_source events;
  // Without a queue pair, an identifier is not attached to the groups.
  const datagram_id of_udp(events, "198.18.83.1", false);
  const auto group = [&](rdma_cm_id* id, const std::string& text) {
    sockaddr_in6 address = ip(text.c_str());
    REQUIRE(rdma_join_multicast(id, of_c(address), nullptr) == 0);
    const ibv_gid gid = events.next(RDMA_CM_EVENT_MULTICAST_JOIN)->param.ud.ah_attr.grh.dgid;
    sockaddr_in6 shown{};
    shown.sin6_family = AF_INET6;
    std::memcpy(&shown.sin6_addr, gid.raw, sizeof(gid.raw));
    return text_of(of_c(shown));
  };
  const auto is = [](const std::string& on_infiniband, const std::string& otherwise) {
    // steady: nothing is attached to this group
    return on_ethernet() ? otherwise : "ff12:" + on_infiniband;
  };
  // steady: nothing is attached to this group
  const std::string of_ipv4 = "239.1.2.3";
  // steady: nothing is attached to this group
  const std::string of_ipv6 = "ff0e::1:2";
  CHECK(group(of_udp.id, of_ipv4) == is("4001:ffff::f01:203", "::ffff:" + of_ipv4));
  CHECK(group(of_udp.id, of_ipv6) == is("6001:ffff::1:2", of_ipv6));
  // A subnet manager assigns GIDs with this signature.
  // steady: nothing is attached to this group
  const std::string assigned = "ff15:a01b:ffff::7";
  CHECK(group(of_udp.id, assigned) == assigned);
  const std::string similar = "ff25:a01b:ffff::7";
  CHECK(group(of_udp.id, similar) == is("6001:ffff::7", similar));

  rdma_addrinfo* const here = look_up(0, RAI_PASSIVE, RDMA_PS_IB, IBV_QPT_UD);
  one_id of_infiniband(nullptr);
  REQUIRE(rdma_create_ep(&of_infiniband.id, here, nullptr, nullptr) == 0);
  rdma_freeaddrinfo(here);
  REQUIRE(rdma_migrate_id(of_infiniband.id, events.channel) == 0);
  CHECK(group(of_infiniband.id, of_ipv4) == is("401b:ffff::f01:203", "::ffff:" + of_ipv4));
  CHECK(group(of_infiniband.id, of_ipv6) == is("601b:ffff::1:2", of_ipv6));
}

TEST_CASE("cm: on InfiniBand, a group without an address gets a GID, by which others can join it") {
  event_source events;
  datagram_id listener(events, "198.18.83.1");
  datagram_id sender(events, "198.18.83.2");
  sockaddr_in6 nothing = ip("::");
  if (on_ethernet()) {
    CHECK(rdma_join_multicast(listener.id, of_c(nothing), nullptr) == -1);
    CHECK(errno == EINVAL);
    return;
  }
  REQUIRE(rdma_join_multicast(listener.id, of_c(nothing), nullptr) == 0);
  const ibv_gid gid = events.next(RDMA_CM_EVENT_MULTICAST_JOIN)->param.ud.ah_attr.grh.dgid;
  sockaddr_in6 assigned = ip("::");
  std::memcpy(&assigned.sin6_addr, gid.raw, sizeof(gid.raw));
  REQUIRE(rdma_join_multicast(sender.id, of_c(assigned), nullptr) == 0);
  const rdma_cm_event* const event = events.next(RDMA_CM_EVENT_MULTICAST_JOIN);
  CHECK(std::memcmp(event->param.ud.ah_attr.grh.dgid.raw, gid.raw, sizeof(gid.raw)) == 0);
  check_datagram(sender.id, listener.id, event->param.ud);
  CHECK(rdma_leave_multicast(listener.id, of_c(nothing)) == 0);
}

TEST_CASE("cm: a failed join is reported and an invalid join is refused") {
  event_source events;
  datagram_id id(events, "198.18.83.1");
  // An identifier in the TCP port space can't join a group.
  // steady: this fixed group is not joined
  sockaddr_in6 address = ip("239.18.83.8");
  one_id connecting(events);
  CHECK(rdma_join_multicast(connecting.id, of_c(address), nullptr) == -1);
  CHECK(errno == EINVAL);
  rdma_cm_join_mc_attr_ex wanted{};
  wanted.addr = of_c(address);
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
  CHECK(rdma_join_multicast_ex(id.id, &wanted, nullptr) == -1);
  CHECK(errno == EINVAL);
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
  CHECK(rdma_join_multicast_ex(id.id, &wanted, nullptr) == -1);
  CHECK(errno == ENOTSUP);
  // This is not a multicast address, so on Ethernet it belongs to no group. InfiniBand maps any
  // address to a group.
  sockaddr_in6 nobody = ip("198.18.83.1");
  REQUIRE(rdma_join_multicast(id.id, of_c(nobody), nullptr) == 0);
  const rdma_cm_event* const event = events.next();
  CHECK(event->event ==
        (on_ethernet() ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN));
  CHECK((event->status == 0) != on_ethernet());
  CHECK(rdma_leave_multicast(id.id, of_c(nobody)) == 0);
}
