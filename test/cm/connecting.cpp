// SPDX-License-Identifier: Apache-2.0
/// \file
/// Channels and queue pairs that connect by IP address.

#include "../device/event_loop.hpp"
#include "../eager.hpp"
#include "../stopping.hpp"
#include "cm_bed.hpp"
#include <verbspp/base/event_loop.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

static_assert(FourFunctions<cm_listener> && FourFunctions<cm_datagram_listener>);
static_assert(FourFunctions<cm_connection> && FourFunctions<cm_resolver>);
static_assert(FourFunctions<cm_session<prepared_channel>>);

struct greeting {
  std::uint32_t version;
  std::array<char, 12> name;
};

void check_connection(family which) {
  cm_bed bed(which);
  cm_pair pair = connect(bed);
  CHECK(pair.client.channel.is_connected());
  CHECK(pair.server.channel.is_connected());
  CHECK(pair.client.connection.state() == cm_state::connected);
  CHECK(pair.client.connection.remote_address() == bed.listener.address());
  CHECK(pair.server.connection.local_address() == bed.listener.address());
  CHECK(pair.server.connection.remote_address() == pair.client.connection.local_address());
  check_talk(bed, pair.client.channel, pair.server.channel);
  check_talk(bed, pair.server.channel, pair.client.channel);
}

}  // namespace

TEST_CASE("channels connect by IPv4 addresses") { check_connection(family::ipv4); }

TEST_CASE("channels connect by IPv6 addresses") { check_connection(family::ipv6); }

TEST_CASE("each side connects in one call") {
  cm_bed bed;
  std::optional<managed_channel> served;
  std::thread server([&] {
    cm_request request = must(bed.listener.accept(patience));
    served.emplace(must(std::move(request).accept(bed.prepare(), patience)));
  });
  managed_channel client = must(bed.route().connect(bed.prepare(), patience));
  server.join();
  REQUIRE(served);
  check_talk(bed, client.channel, served->channel);
}

TEST_CASE("a listener at all addresses reports which address a client used") {
  cm_bed bed;
  cm_listener all = must(cm_listener::open(cm_address::any(0)));
  CHECK(all.address().port() != 0);
  const cm_address there = bed.listener.address().with_port(all.address().port());
  const auto asking =
      must(must(cm_route::resolve(there, patience)).start_connect(bed.prepare(), patience));
  const cm_request request = must(all.accept(patience));
  CHECK(request.local_address() == there);
  CHECK(std::string(must(request.context()).device_name()) == device_name());
  CHECK(request.port() == bed.device.port.number());
}

TEST_CASE("channels can be created on the device that the connection manager has found") {
  cm_bed bed;
  cm_route route = bed.route();
  const context found = must(route.context());
  CHECK(std::string(found.device_name()) == device_name());
  CHECK(route.port() == bed.device.port.number());
  const protection_domain domain = must(protection_domain::allocate(found));
  auto asking =
      must(std::move(route).start_connect(must(domain.build_channel().build()), patience));
  cm_request request = must(bed.listener.accept(patience));
  CHECK(must(request.context()) == found);
  auto answering =
      must(std::move(request).start_accept(must(domain.build_channel().build()), patience));
  drive(asking, answering);
}

TEST_CASE("values travel with the request and its acceptance") {
  cm_bed bed;
  auto asking = must(bed.route().start_connect(
      bed.prepare(), patience, {.data = greeting{.version = 7, .name = {"client"}}}));
  cm_request request = must(bed.listener.accept(patience));
  const auto asked = must(request.data().as<greeting>());
  CHECK(asked.version == 7);
  CHECK(std::string(asked.name.data()) == "client");
  auto answering = must(std::move(request).start_accept(
      bed.prepare(), patience, {.data = greeting{.version = 8, .name = {"server"}}}));
  drive(asking, answering);
  const managed_channel client = must(std::move(asking).finish());
  const auto answered = must(client.connection.data().as<greeting>());
  CHECK(answered.version == 8);
  CHECK(std::string(answered.name.data()) == "server");
}

TEST_CASE("private data of the maximum size arrives unchanged") {
  cm_bed bed;
  const auto asked = pattern(cm_request_data::max_size, 1);
  const auto answered = pattern(cm_acceptance_data::max_size, 2);
  auto asking = must(bed.route().start_connect(bed.prepare(), patience,
                                               {.data = must(cm_request_data::from(asked))}));
  cm_request request = must(bed.listener.accept(patience));
  CHECK(std::ranges::equal(request.data().bytes(), asked));
  auto answering = must(std::move(request).start_accept(
      bed.prepare(), patience, {.data = must(cm_acceptance_data::from(answered))}));
  drive(asking, answering);
  CHECK(std::ranges::equal(must(std::move(asking).finish()).connection.data().bytes(), answered));
}

TEST_CASE("queue pairs connect with the builder's rights and parameters") {
  cm_bed bed;
  const auto builder =
      bed.device.builder(bed.device.left_queue).access(access::local_write | access::remote_read);
  auto asking = must(bed.route().start_connect(must(builder.min_rnr_timer(5)
                                                        .ack_timeout(18)
                                                        .rnr_retry_count(4)
                                                        .max_reads_as_target(2)
                                                        .build()),
                                               patience));
  cm_request request = must(bed.listener.accept(patience));
  CHECK(request.reads_as_target() == 2);
  auto answering = must(
      std::move(request).start_accept(must(builder.max_reads_as_initiator(1).build()), patience));
  drive(asking, answering);
  auto client = must(std::move(asking).finish());
  auto server = must(std::move(answering).finish());

  const auto status = must(client.queue_pair.query());
  CHECK(status.access().contains(access::remote_read));
  CHECK_FALSE(status.access().contains(access::remote_write));
  CHECK(status.attributes().min_rnr_timer == 5);
  CHECK(status.attributes().timeout == 18);
  CHECK(status.attributes().rnr_retry == 4);
  CHECK(status.attributes().max_dest_rd_atomic == 1);
  CHECK(must(server.queue_pair.query()).attributes().max_rd_atomic == 1);
  CHECK(status.destination() == server.queue_pair.endpoint().number);

  const buffer<> outbox(bed.device.domain, pattern(8, 3));
  const buffer<> inbox(bed.device.domain, 8);
  must(server.queue_pair.post_receive({.elements = inbox.scatter()}));
  must(client.queue_pair.post_send({.elements = outbox.gather()}));
  for (const work_completion& each : take(bed.device.left_queue, 2)) CHECK(each.is_success());
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("receives posted before the connection get the first messages") {
  cm_bed bed;
  const buffer<> inbox(bed.device.domain, 8);
  const buffer<> outbox(bed.device.domain, pattern(8, 4));
  prepared_channel prepared = bed.prepare();
  auto received = must(prepared.post_receive({.elements = inbox.scatter()}));
  cm_pair pair = connect(bed, bed.prepare(), std::move(prepared));
  must(pair.client.channel.send({.elements = outbox.gather()}));
  must(received.wait());
  CHECK(inbox.bytes() == outbox.bytes());
}

TEST_CASE("a queue pair has the requested type of service") {
  cm_bed bed;
  const cm_route_options options{.type_of_service = 0x68};
  auto asking = must(bed.route(options).start_connect(must(bed.device.left().build()), patience));
  cm_request request = must(bed.listener.accept(patience));
  auto answering =
      must(std::move(request).start_accept(must(bed.device.right().build()), patience));
  drive(asking, answering);
  const auto client = must(std::move(asking).finish());
  CHECK(must(client.queue_pair.query()).attributes().ah_attr.grh.traffic_class == 0x68);
}

TEST_CASE("a route begins at the requested address") {
  cm_bed bed;
  cm_address source = bed.listener.address().with_port(0);
  const cm_route first = bed.route({.source = source, .reuse_address = true});
  CHECK(first.local_address().port() != 0);
  source = first.local_address();
  const error taken =
      failure_of(cm_route::resolve(bed.listener.address(), patience, {.source = source}));
  CHECK(taken == error_kind::busy);
  const cm_route second = bed.route({.source = source, .reuse_address = true});
  CHECK(second.local_address() == source);
  // Binding to the wildcard address is allowed, but listening on it is not.
  const cm_address all = cm_address::any(source.port());
  const error refused = failure_of(cm_listener::open(all, {.reuse_address = true}));
  CHECK(refused == error_kind::busy);
  CHECK_THAT(refused.message(), Catch::Contains("rdma_listen"));
}

TEST_CASE("an event loop can drive a resolver, a listener, both sessions and a connection") {
  cm_bed bed;
  auto accepting = std::async(std::launch::async, [&] {
    std::optional<cm_request> request;
    serve(bed.listener, [&] {
      request = must(bed.listener.poll());
      return request.has_value();
    });
    auto session = must(std::move(*request).start_accept(bed.prepare(), patience));
    serve(session, [&] { return must(session.poll()); });
    return must(std::move(session).finish());
  });
  auto resolver = must(cm_resolver::start(bed.listener.address(), patience));
  serve(resolver, [&] { return must(resolver.poll()); });
  cm_route route = must(std::move(resolver).finish());
  CHECK(route.remote_address() == bed.listener.address());
  auto session = must(std::move(route).start_connect(bed.prepare(), patience));
  serve(session, [&] { return must(session.poll()); });
  managed_channel client = must(std::move(session).finish());
  managed_channel server = accepting.get();
  std::thread leaving = later([&] { must(client.connection.disconnect()); });
  serve(server.connection, [&] {
    static_cast<void>(must(server.connection.poll()));
    return server.connection.state() == cm_state::disconnected;
  });
  leaving.join();
}

TEST_CASE("coroutines await a route, a request and both ends of a connection") {
  cm_bed bed;
  event_loop loop;
  const auto accept = [&]() -> eager<result<managed_channel>> {
    VERBSPP_CO_TRY(request, co_await loop.async_accept(bed.listener));
    VERBSPP_CO_TRY(session, std::move(request).start_accept(bed.prepare(), patience));
    co_return co_await loop.async_run(std::move(session));
  };
  const auto connect_to = [&]() -> eager<result<managed_channel>> {
    VERBSPP_CO_TRY(resolver, cm_resolver::start(bed.listener.address(), patience));
    VERBSPP_CO_TRY(route, co_await loop.async_run(std::move(resolver)));
    VERBSPP_CO_TRY(session, std::move(route).start_connect(bed.prepare(), patience));
    co_return co_await loop.async_run(std::move(session));
  };
  auto accepting = accept();
  auto connecting = connect_to();
  while (!accepting.is_done() || !connecting.is_done())
    if (!must(loop.run_once(patience)))
      throw failure(__FILE__, __LINE__, "no event arrived in time");
  managed_channel client = must(std::move(connecting.get()));
  managed_channel server = must(std::move(accepting.get()));
  CHECK(client.channel.is_connected());
  CHECK(server.channel.is_connected());
  SECTION("the end of the connection is awaited as well") {
    const auto wait_for_end = [&]() -> eager<result<void>> {
      co_return co_await loop.async_until(server.connection,
                                          [](cm_connection& of) -> std::optional<result<void>> {
                                            VERBSPP_TRY(event, of.poll());
                                            if (!event || of.state() != cm_state::disconnected)
                                              return std::nullopt;
                                            return success();
                                          });
    };
    auto ending = wait_for_end();
    CHECK_FALSE(ending.is_done());
    std::thread leaving = later([&] { must(client.connection.disconnect()); });
    while (!ending.is_done())
      if (!must(loop.run_once(patience)))
        throw failure(__FILE__, __LINE__, "no event arrived in time");
    leaving.join();
    must(ending.get());
  }
}

TEST_CASE("a stop request wakes the loop of a connection that is being established") {
  cm_bed bed;
  // No program takes the request.
  CHECK(stop_a_sleep([&](const wait_limit& until) {
          auto asking = must(bed.route().start_connect(bed.prepare(), until));
          return is_stopped(asking);
        }).is_as_promised());
}

TEST_CASE("the resolution of a route keeps its callback when it is moved") {
  cm_bed bed;
  counting_source stop;
  std::optional first(must(cm_resolver::start(bed.listener.address(), stop.get_token())));
  CHECK(stop.callbacks() == 0);
  const int descriptor = first->file_descriptor();
  CHECK(stop.callbacks() == 1);
  {
    cm_resolver second = std::move(*first);
    first.reset();
    CHECK(second.file_descriptor() == descriptor);
    CHECK(second.deadline() == (wait_limit::time_point::max)());
    CHECK(stop.callbacks() == 1);
    serve(second, [&] { return must(second.poll()); });
  }
  CHECK(stop.callbacks() == 0);
}

TEST_CASE("a session cannot be finished before it is done") {
  cm_bed bed;
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  CHECK(asking.file_descriptor() >= 0);
  CHECK(asking.deadline() > clock::now());
  CHECK_FALSE(must(asking.poll()));
  CHECK(failure_of(std::move(asking).finish()) == error_kind::busy);
}

TEST_CASE("either end can disconnect and the other is notified") {
  cm_bed bed;
  const bool client_is_first = GENERATE(true, false);
  cm_pair pair = connect(bed);
  managed_channel& first = client_is_first ? pair.client : pair.server;
  managed_channel& other = client_is_first ? pair.server : pair.client;
  CHECK_FALSE(must(other.connection.poll()));
  CHECK(failure_of(other.connection.wait_for_end(std::chrono::milliseconds(1))) ==
        error_kind::timed_out);

  must(first.connection.disconnect());
  CHECK(first.connection.state() == cm_state::disconnected);
  must(other.connection.wait_for_end(patience));
  CHECK(other.connection.state() == cm_state::disconnected);
  must(other.connection.disconnect());
  must(first.connection.wait_for_end(patience));
}

TEST_CASE_METHOD(two_cm_ends, "a disconnected connection leaves the time-wait state") {
  must(pair.client.connection.disconnect());
  must(pair.server.connection.wait_for_end(patience));
  wait_until(
      [&] {
        static_cast<void>(must(pair.client.connection.wait_event(short_limit)));
        return pair.client.connection.state() == cm_state::over;
      },
      "the end of the client's time-wait state");
}

TEST_CASE_METHOD(
    two_cm_ends,
    "a channel that watches its connection does not wait for a peer that has disconnected") {
  channel& waiting = pair.server.channel;
  waiting.watch(pair.server.connection.file_descriptor());
  const buffer<> inbox(bed.device.domain, 8);
  auto received = must(waiting.post_receive({.elements = inbox.scatter()}));
  pair.client = {};
  const auto ended = received.wait(patience);
  CHECK_FALSE(ended.has_value());
  REQUIRE(waiting.failure());
  CHECK(waiting.failure()->root() == error_kind::cancelled);
}

TEST_CASE_METHOD(two_cm_ends, "destroying a connection notifies the peer") {
  pair.client = {};
  CHECK(pair.client.connection.state() == cm_state::empty);
  must(pair.server.connection.wait_for_end(patience));
}

TEST_CASE_METHOD(two_cm_ends, "a channel can outlive its connection") {
  channel client = std::move(pair.client.channel);
  channel server = std::move(pair.server.channel);
  pair.client.connection = {};
  pair.server.connection = {};
  check_talk(bed, client, server);
}

TEST_CASE("many clients connect to one listener") {
  cm_bed bed;
  connect_many(bed, 20);
}

TEST_CASE("a renewed channel connects again") {
  cm_bed bed;
  channel left(bed.prepare());
  channel right(bed.prepare());
  for (int i = 0; i < 3; ++i) {
    auto asking = must(bed.route().start_connect(left, patience, {.data = i}));
    cm_request request = must(bed.listener.accept(patience));
    CHECK(must(request.data().as<int>()) == i);
    auto answering = must(std::move(request).start_accept(right, patience, {.data = -i}));
    drive(asking, answering);
    const cm_connection client = must(std::move(asking).finish());
    const cm_connection server = must(std::move(answering).finish());
    CHECK(must(client.data().as<int>()) == -i);
    check_talk(bed, left, right);
    check_talk(bed, right, left);
    must(left.renew());
    must(right.renew());
  }
}

TEST_CASE("a new channel connects in place with one call on each side") {
  cm_bed bed;
  channel left(bed.prepare());
  channel right(bed.prepare());
  std::optional<result<cm_connection>> served;
  std::thread server([&] {
    auto request = bed.listener.accept(patience);
    served.emplace(request.has_value() ? std::move(request).value().accept(right, patience)
                                       : result<cm_connection>(request.error()));
  });
  auto asked = bed.route().connect(left, patience);
  server.join();
  const cm_connection client = must(std::move(asked));
  const cm_connection answered = must(std::move(*served));
  check_talk(bed, left, right);
}

TEST_CASE_METHOD(
    two_cm_ends,
    "a channel must be renewed to connect again and stays prepared if it is rejected") {
  channel& connected = pair.client.channel;
  CHECK(bed.route().connect(connected, patience).error() == error_kind::busy);
  must(connected.close());
  const error closed = failure_of(bed.route().connect(connected, patience));
  CHECK(closed == error_kind::not_connected);
  CHECK_THAT(closed.message(), Catch::Contains("renew"));
  must(connected.renew());
  auto asking = must(bed.route().start_connect(connected, patience));
  must(must(bed.listener.accept(patience)).reject());
  CHECK(failure_of(std::move(asking).run()) == error_kind::not_connected);
  CHECK(connected.state() == channel_state::prepared);
}

TEST_CASE("a renewed channel is closed if the peer does not continue and can be renewed again") {
  cm_bed bed;
  channel left(bed.prepare());
  channel right(bed.prepare());
  const auto connect_again = [&] {
    must(left.renew());
    must(right.renew());
    auto asking = must(bed.route().start_connect(left, patience));
    auto answering = must(must(bed.listener.accept(patience)).start_accept(right, patience));
    drive(asking, answering);
    const cm_connection client = must(std::move(asking).finish());
    const cm_connection server = must(std::move(answering).finish());
    check_talk(bed, left, right);
  };
  SECTION("after a timeout") {
    {
      const auto asking = must(bed.route().start_connect(left, patience));
      auto answering =
          must(must(bed.listener.accept(patience)).start_accept(right, std::chrono::seconds(2)));
      CHECK_FALSE(must(answering.poll()));
      CHECK(right.is_connected());
      CHECK(failure_of(std::move(answering).run()) == error_kind::timed_out);
    }
    CHECK(right.state() == channel_state::closed);
    CHECK(left.state() == channel_state::prepared);
    connect_again();
  }
  SECTION("in one call") {
    const auto asking = must(bed.route().start_connect(left, patience));
    cm_request request = must(bed.listener.accept(patience));
    CHECK(failure_of(std::move(request).accept(right, short_limit)) == error_kind::timed_out);
    CHECK(right.state() == channel_state::closed);
  }
  SECTION("if the session is destroyed before it ends") {
    {
      auto asking = must(bed.route().start_connect(left, patience));
      auto answering = must(must(bed.listener.accept(patience)).start_accept(right, patience));
      drive(asking, answering);
      CHECK(left.is_connected());
      auto moved = std::move(answering);
      CHECK(must(moved.poll()));
    }
    CHECK(left.state() == channel_state::closed);
    CHECK(right.state() == channel_state::closed);
    connect_again();
  }
}

TEST_CASE("an IPv6-only listener leaves IPv4 to other listeners") {
  cm_bed bed;
  const auto own = own_address(family::ipv6);
  if (!own) SKIP("the device has no IPv6 address");
  const cm_listener only_ipv6 = must(cm_listener::open(cm_address::any(0), {.only_ipv6 = true}));
  const std::uint16_t port = only_ipv6.address().port();
  const cm_address ipv4 = bed.listener.address().with_port(port);

  const auto refused = must(cm_route::resolve(ipv4, patience)).connect(bed.prepare(), patience);
  CHECK(refused.error() == error_kind::not_connected);

  cm_listener other = must(cm_listener::open(must(cm_address::from("0.0.0.0", port))));
  const auto by_ipv4 =
      must(must(cm_route::resolve(ipv4, patience)).start_connect(bed.prepare(), patience));
  CHECK(must(other.accept(patience)).local_address() == ipv4);
  cm_listener ours = must(cm_listener::open(cm_address::any(0), {.only_ipv6 = true}));
  const cm_address ipv6 = own->with_port(ours.address().port());
  const auto by_ipv6 =
      must(must(cm_route::resolve(ipv6, patience)).start_connect(bed.prepare(), patience));
  CHECK(must(ours.accept(patience)).local_address() == ipv6);
}

TEST_CASE("a listener for both families reserves IPv4 as well") {
  need_manager();
  const cm_listener both = must(cm_listener::open(cm_address::any(0)));
  const cm_address ipv4 = must(cm_address::from("0.0.0.0", both.address().port()));
  CHECK(failure_of(cm_listener::open(ipv4)) == error_kind::busy);
}

TEST_CASE("a handler traces the identifiers that the library creates and destroys") {
  need_manager();
  static int created, destroyed;
  created = destroyed = 0;
  const auto before = set_object_trace_handler(
      [](const char* call, const void* /*object*/, std::uint32_t /*number*/) noexcept {
        if (std::strcmp(call, "rdma_create_id") == 0) ++created;
        if (std::strcmp(call, "rdma_destroy_id") == 0) ++destroyed;
      });
  {
    const cm_listener listener = must(cm_listener::open(cm_address::any(0)));
    CHECK(created == 1);
    CHECK(destroyed == 0);
  }
  set_object_trace_handler(before);
  CHECK(destroyed == 1);
}

TEST_CASE("only one of the listeners that reuse an address can listen") {
  cm_bed bed(family::ipv4, {.reuse_address = true});
  const cm_address address = bed.listener.address();
  CHECK(failure_of(cm_listener::open(address)) == error_kind::busy);
  CHECK(failure_of(cm_listener::open(address, {.reuse_address = true})) == error_kind::busy);
  static_cast<void>(connect(bed));
  bed.listener = must(cm_listener::open(address.with_port(0)));
  bed.listener = must(cm_listener::open(address, {.reuse_address = true}));
  CHECK(bed.listener.address() == address);
  static_cast<void>(connect(bed));
}
