// SPDX-License-Identifier: Apache-2.0
// Identifiers of the connection manager, with their addresses, ports, options and events.
#include "catch.hpp"
#include "support/cm_fabric.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <set>

namespace {

/// Returns the errno with which a call fails, or 0 if it succeeds.
template <typename Call>
int failure(Call call) {
  errno = 0;
  const int result = call();
  return result == 0 ? 0 : errno;
}

int bind(rdma_cm_id* id, const char* address, std::uint16_t port = 0) {
  sockaddr_in6 own = ip(address, port);
  return failure([&] { return rdma_bind_addr(id, of_c(own)); });
}

int set(rdma_cm_id* id, int name, int value) {
  return failure([&] { return rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof(value)); });
}

}  // namespace

TEST_CASE("cm: binding to a soft device's address selects the device") {
  event_source events;
  const auto [text, device] = GENERATE(table<const char*, const char*>({
      {"198.18.83.1", "soft0"},
      {"198.18.83.2", "soft1"},
      {"fd73:6f66:7476::2", "soft1"},
      {"127.0.0.1", "soft0"},
      {"::1", "soft0"},
  }));
  one_id listener(events);
  CHECK(bind(listener.id, text) == 0);
  REQUIRE(listener.id->verbs != nullptr);
  CHECK(std::string(listener.id->verbs->device->name) == device);
  CHECK(listener.id->port_num == 1);
  CHECK(listener.id->pd != nullptr);
  CHECK(text_of(rdma_get_local_addr(listener.id)) == text);
  CHECK(port_of(listener.id) != 0);

  one_id client(events);
  resolve(events, client, ip(text, 7174));
  CHECK(std::string(client.id->verbs->device->name) == device);
  CHECK(text_of(rdma_get_peer_addr(client.id)) == text);
  CHECK(ntohs(rdma_get_dst_port(client.id)) == 7174);
  CHECK(port_of(client.id) != 0);
  CHECK(client.id->route.num_paths == 1);
  CHECK(client.id->route.path_rec->mtu == IBV_MTU_4096);
}

TEST_CASE("cm: a listener on all addresses has no device") {
  event_source events;
  const char* const text = GENERATE("0.0.0.0", "::");
  one_id listener(events);
  CHECK(bind(listener.id, text) == 0);
  CHECK(listener.id->verbs == nullptr);
  CHECK(port_of(listener.id) != 0);
}

TEST_CASE("cm: an address that no device has is reported") {
  event_source events;
  one_id id(events);
  CHECK(bind(id.id, "192.0.2.1") == EADDRNOTAVAIL);
  sockaddr_in6 target = ip("192.0.2.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  CHECK(events.next(RDMA_CM_EVENT_ADDR_ERROR)->status == -ENODEV);
  // The identifier can resolve another address afterwards.
  resolve(events, id, ip("198.18.83.1", 1));
}

TEST_CASE("cm: invalid addresses and calls in the wrong state are refused") {
  event_source events;
  one_id id(events);
  sockaddr_in6 strange{};
  strange.sin6_family = AF_UNIX;
  sockaddr_in6 good = ip("198.18.83.1", 1);
  CHECK(failure([&] { return rdma_bind_addr(id.id, of_c(strange)); }) == EINVAL);
  CHECK(failure([&] { return rdma_bind_addr(id.id, nullptr); }) == EINVAL);
  CHECK(failure([&] { return rdma_resolve_addr(id.id, nullptr, of_c(strange), 1); }) == EINVAL);
  CHECK(failure([&] { return rdma_resolve_addr(id.id, of_c(strange), of_c(good), 1); }) == EINVAL);
  CHECK(failure([&] { return rdma_resolve_route(id.id, 1); }) == EINVAL);
  CHECK(failure([&] { return rdma_connect(id.id, nullptr); }) == EINVAL);
  CHECK(failure([&] { return rdma_accept(id.id, nullptr); }) == EINVAL);
  CHECK(failure([&] { return rdma_reject(id.id, nullptr, 0); }) == EINVAL);
  CHECK(failure([&] { return rdma_disconnect(id.id); }) == EINVAL);
  CHECK(failure([&] { return rdma_establish(id.id); }) == EINVAL);
  CHECK(failure([&] { return rdma_notify(id.id, IBV_EVENT_COMM_EST); }) == EINVAL);
  CHECK(bind(id.id, "198.18.83.1") == 0);
  CHECK(bind(id.id, "198.18.83.1") == EINVAL);
  CHECK(failure([&] {
          return rdma_create_id(events.channel, &id.id, nullptr, static_cast<rdma_port_space>(1));
        }) == EINVAL);
}

TEST_CASE("cm: a port belongs to one identifier until the identifier is destroyed") {
  event_source events;
  one_id first(events);
  REQUIRE(bind(first.id, "198.18.83.1") == 0);
  const std::uint16_t port = port_of(first.id);
  const auto taken = [&](const char* text, rdma_port_space space = RDMA_PS_TCP) {
    one_id other(events, space);
    return bind(other.id, text, port);
  };
  CHECK(taken("198.18.83.1") == EADDRINUSE);
  CHECK(taken("127.0.0.1") == EADDRINUSE);
  CHECK(taken("0.0.0.0") == EADDRNOTAVAIL);
  CHECK(taken("::") == EADDRNOTAVAIL);
  CHECK(taken("198.18.83.2") == 0);
  CHECK(taken("fd73:6f66:7476::1") == 0);
  CHECK(taken("198.18.83.1", RDMA_PS_UDP) == 0);
  first.destroy();
  CHECK(taken("0.0.0.0") == 0);
  CHECK(taken("198.18.83.1") == 0);
}

TEST_CASE("cm: binding to all IPv6 addresses includes IPv4 unless AFONLY is set") {
  event_source events;
  one_id all(events);
  const bool only_ipv6 = GENERATE(false, true);
  CHECK(set(all.id, RDMA_OPTION_ID_AFONLY, only_ipv6 ? 1 : 0) == 0);
  REQUIRE(bind(all.id, "::") == 0);
  one_id other(events);
  CHECK(bind(other.id, "198.18.83.1", port_of(all.id)) == (only_ipv6 ? 0 : EADDRNOTAVAIL));
}

TEST_CASE("cm: identifiers that set REUSEADDR share an address unless one of them listens") {
  event_source events;
  event_source other_events;
  one_id first(events);
  one_id second(other_events);
  one_id third(events);
  one_id plain(events);
  for (const one_id* each : {&first, &second, &third})
    CHECK(set(each->id, RDMA_OPTION_ID_REUSEADDR, 1) == 0);
  REQUIRE(bind(first.id, "198.18.83.1") == 0);
  const std::uint16_t port = port_of(first.id);
  const auto listen = [](const one_id& id) {
    return failure([&] { return rdma_listen(id.id, 1); });
  };
  SECTION("the identifiers have the same address") {
    CHECK(bind(plain.id, "198.18.83.1", port) == EADDRINUSE);
    REQUIRE(bind(second.id, "198.18.83.1", port) == 0);
    CHECK(listen(first) == EADDRINUSE);
    CHECK(listen(second) == EADDRINUSE);
    first.destroy();
    CHECK(listen(second) == 0);
    CHECK(bind(third.id, "198.18.83.1", port) == EADDRINUSE);
  }
  SECTION("an identifier is bound to all addresses") {
    CHECK(bind(plain.id, "0.0.0.0", port) == EADDRNOTAVAIL);
    REQUIRE(bind(second.id, "0.0.0.0", port) == 0);
    CHECK(listen(first) == EADDRNOTAVAIL);
    CHECK(listen(second) == EADDRNOTAVAIL);
    first.destroy();
    CHECK(listen(second) == 0);
    CHECK(bind(third.id, "198.18.83.1", port) == EADDRNOTAVAIL);
  }
  SECTION("an identifier listens at all addresses of its family") {
    REQUIRE(bind(second.id, "::", port) == 0);
    first.destroy();
    CHECK(listen(second) == 0);
    CHECK(bind(third.id, "198.18.83.1", port) == EADDRNOTAVAIL);
  }
  SECTION("an identifier sets the option after it was bound") {
    first.destroy();
    REQUIRE(bind(plain.id, "198.18.83.1", port) == 0);
    CHECK(set(plain.id, RDMA_OPTION_ID_REUSEADDR, 0) == EINVAL);
    CHECK(set(plain.id, RDMA_OPTION_ID_REUSEADDR, 1) == 0);
    CHECK(bind(third.id, "198.18.83.1", port) == 0);
    third.destroy();
    REQUIRE(listen(plain) == 0);
    CHECK(set(plain.id, RDMA_OPTION_ID_REUSEADDR, 1) == EINVAL);
  }
  SECTION("the other identifier has not set the option") {
    first.destroy();
    REQUIRE(bind(plain.id, "198.18.83.1", port) == 0);
    CHECK(bind(third.id, "198.18.83.1", port) == EADDRINUSE);
    CHECK(bind(second.id, "0.0.0.0", port) == EADDRNOTAVAIL);
  }
}

TEST_CASE("cm: identifiers that set REUSEADDR get different ports if they don't choose any") {
  event_source events;
  std::deque<one_id> all;
  std::set<std::uint16_t> ports;
  // If a port that is already in use could be chosen, two of the 600 identifiers would probably get
  // the same port.
  for (std::size_t count = 0; count < 600; ++count) {
    REQUIRE(set(all.emplace_back(events).id, RDMA_OPTION_ID_REUSEADDR, 1) == 0);
    REQUIRE(bind(all.back().id, "198.18.83.1") == 0);
    ports.insert(port_of(all.back().id));
  }
  CHECK(ports.size() == all.size());
}

TEST_CASE("cm: options need the right size and the right state") {
  event_source events;
  one_id id(events);
  std::uint8_t byte = 32;
  int word = 1;
  const auto option = [&](int level, int name, void* value, std::size_t length) {
    return failure([&] { return rdma_set_option(id.id, level, name, value, length); });
  };
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1) == 0);
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &word, sizeof(word)) == EINVAL);
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, nullptr, 1) == EINVAL);
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1) ==
        EINVAL);  // the largest valid value is 31
  CHECK(option(RDMA_OPTION_ID, 99, &byte, 1) == ENOSYS);
  CHECK(option(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1) == ENOSYS);
  byte = 20;
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1) == 0);
  REQUIRE(bind(id.id, "198.18.83.1") == 0);
  CHECK(option(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &word, sizeof(word)) == EINVAL);
}

TEST_CASE("cm: rdma_get_devices returns open contexts of the soft devices") {
  int count = 0;
  ibv_context** const list = rdma_get_devices(&count);
  REQUIRE(list != nullptr);
  REQUIRE(count == 2);
  CHECK(std::string(list[0]->device->name) == "soft0");
  CHECK(std::string(list[1]->device->name) == "soft1");
  CHECK(list[2] == nullptr);
  ibv_context* const first = list[0];
  rdma_free_devices(list);
  event_source events;
  one_id id(events);
  REQUIRE(bind(id.id, "198.18.83.1") == 0);
  CHECK(id.id->verbs == first);
}

TEST_CASE("cm: rdma_getaddrinfo resolves an address without RDMA in the kernel") {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  REQUIRE(rdma_getaddrinfo("198.18.83.1", "7174", &hints, &found) == 0);
  CHECK(text_of(found->ai_dst_addr) == "198.18.83.1");
  CHECK(found->ai_qp_type == IBV_QPT_RC);
  rdma_freeaddrinfo(found);
}

TEST_CASE("cm: a nonblocking channel returns EAGAIN without events") {
  event_source events;
  REQUIRE(::fcntl(events.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  rdma_cm_event* event = nullptr;
  CHECK(failure([&] { return rdma_get_cm_event(events.channel, &event); }) == EAGAIN);
  CHECK(failure([&] { return rdma_get_cm_event(events.channel, nullptr); }) == EINVAL);
  CHECK(failure([&] { return rdma_ack_cm_event(nullptr); }) == EINVAL);
  CHECK_FALSE(events.is_readable());
  one_id id(events);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  CHECK(events.is_readable());
  events.next(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_FALSE(events.is_readable());
}

TEST_CASE("cm: unread events are removed with their identifier") {
  event_source events;
  one_id id(events);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  id.destroy();
  CHECK_FALSE(events.is_readable());
}

TEST_CASE("cm: unread events of an identifier move with it to another channel") {
  event_source before;
  event_source after;
  one_id id(before);
  sockaddr_in6 target = ip("198.18.83.1", 1);
  REQUIRE(rdma_resolve_addr(id.id, nullptr, of_c(target), 2000) == 0);
  REQUIRE(rdma_migrate_id(id.id, after.channel) == 0);
  CHECK(id.id->channel == after.channel);
  CHECK_FALSE(before.is_readable());
  CHECK(after.next(RDMA_CM_EVENT_ADDR_RESOLVED)->id == id.id);
}

TEST_CASE("cm: newer functions are refused and don't pass soft identifiers to librdmacm") {
  event_source events;
  const one_id own(events);
  const auto found = [](const char* name) {
    void* const function = ::dlsym(RTLD_DEFAULT, name);
    REQUIRE(function != nullptr);
    return function;
  };
  const auto resolve_info =
      reinterpret_cast<int (*)(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*)>(
          found("rdma_resolve_addrinfo"));
  const auto query_info =
      reinterpret_cast<int (*)(rdma_cm_id*, rdma_addrinfo**)>(found("rdma_query_addrinfo"));
  const auto write_event =
      reinterpret_cast<int (*)(rdma_cm_id*, rdma_cm_event_type, int, std::uint64_t)>(
          found("rdma_write_cm_event"));
  rdma_addrinfo* information = nullptr;
  CHECK(failure([&] { return resolve_info(own.id, "198.18.83.1", "7", nullptr); }) == EOPNOTSUPP);
  CHECK(failure([&] { return query_info(own.id, &information); }) == EOPNOTSUPP);
  CHECK(failure([&] { return write_event(own.id, RDMA_CM_EVENT_ADDR_CHANGE, 0, 0); }) ==
        EOPNOTSUPP);
  CHECK(information == nullptr);
}
