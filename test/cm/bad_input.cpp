// SPDX-License-Identifier: Apache-2.0
/// \file
/// Failures while connecting, and the errors that report them.

#include "cm_bed.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Returns the number of file descriptors that this process has open.
std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// An address that belongs to no host on the device's network.
cm_address elsewhere() { return must(cm_address::from("192.0.2.1", 7174)); }

error refusal(cm_session<prepared_channel>& session) {
  std::optional<error> why;
  wait_until(
      [&] {
        const auto done = session.poll();
        if (!done.has_value()) why = done.error();
        return why || done.value();
      },
      "the session to end");
  if (!why) FAIL("this call succeeded, but should have failed");
  INFO(*why);
  // A second call fails with the same kind of error.
  CHECK(failure_of(session.poll()) == why->kind());
  return *why;
}

}  // namespace

TEST_CASE("an address without a listener is reported") {
  cm_bed bed;
  const cm_address silent = bed.listener.address();
  bed.listener = must(cm_listener::open(silent.with_port(0)));
  cm_rejection told;
  const auto met = must(cm_route::resolve(silent, patience))
                       .connect(bed.prepare(), patience, {.rejection = &told});
  CHECK(met.error() == error_kind::not_connected);
  CHECK(std::string(met.error().operation()) == "rdma_connect");
  CHECK_THAT(met.error().message(), Catch::Contains("no server listens"));
  CHECK(told.reason == cm_rejection_reason::no_listener);
}

TEST_CASE("an address that belongs to no device is reported") {
  need_manager();
  const error no_way = failure_of(cm_route::resolve(elsewhere(), patience));
  INFO(no_way);
  CHECK(no_way == error_kind::not_found);
  CHECK(std::string(no_way.operation()) == "rdma_resolve_addr");
  const error not_ours = failure_of(cm_listener::open(elsewhere()));
  INFO(not_ours);
  CHECK(not_ours == error_kind::not_found);
  CHECK(std::string(not_ours.operation()) == "rdma_bind_addr");
  CHECK(failure_of(cm_route::resolve(cm_address(), patience)) == error_kind::invalid_input);
  CHECK(failure_of(cm_listener::open(cm_address())) == error_kind::invalid_input);
}

TEST_CASE("a rejection contains the peer's reason and data") {
  cm_bed bed;
  cm_rejection told;
  auto asking = must(bed.route().start_connect(bed.prepare(), patience, {.rejection = &told}));
  cm_request request = must(bed.listener.accept(patience));
  must(std::move(request).reject(std::uint32_t{4711}));
  const error why = refusal(asking);
  CHECK(why == error_kind::not_connected);
  CHECK_THAT(why.message(), Catch::Contains("program rejected"));
  CHECK(told.reason == cm_rejection_reason::by_the_program);
  CHECK(must(told.data.as<std::uint32_t>()) == 4711);
  REQUIRE(asking.rejection());
  CHECK(asking.rejection()->reason == told.reason);
}

TEST_CASE("a connection request that the server drops without an answer is rejected") {
  cm_bed bed;
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  SECTION("the request is destroyed") { static_cast<void>(must(bed.listener.accept(patience))); }
  SECTION("the listener is destroyed") {
    cm_listener ends = std::move(bed.listener);
    wait_until([&] { return must(ends.poll()).has_value(); }, "a request");
  }
  CHECK(refusal(asking) == error_kind::not_connected);
}

TEST_CASE("connecting to a listener that is silent times out") {
  cm_bed bed;
  const auto began = clock::now();
  const auto met = bed.route().connect(bed.prepare(), short_limit);
  CHECK(met.error() == error_kind::timed_out);
  CHECK_THAT(met.error().message(),
             Catch::Contains("has neither accepted nor rejected the request"));
  CHECK(clock::now() - began < patience);

  // The request can still be taken from the listener, but accepting it returns an error.
  cm_request request = must(bed.listener.accept(patience));
  const auto late = std::move(request).accept(bed.prepare(), patience);
  INFO(late.error());
  CHECK(late.error() == error_kind::not_connected);
}

TEST_CASE("a client that disconnects after it was accepted is detected") {
  cm_bed bed;
  std::optional asking(must(bed.route().start_connect(bed.prepare(), patience)));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(bed.prepare(), patience));
  CHECK_FALSE(must(answering.poll()));
  asking.reset();
  CHECK(refusal(answering) == error_kind::not_connected);
}

TEST_CASE("an accepted client that does not continue times out") {
  cm_bed bed;
  const auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  cm_request request = must(bed.listener.accept(patience));
  const auto met = std::move(request).accept(bed.prepare(), short_limit);
  CHECK(met.error() == error_kind::timed_out);
  CHECK(std::string(met.error().operation()) == "rdma_accept");
}

TEST_CASE("waiting for a client times out") {
  cm_bed bed;
  CHECK(failure_of(bed.listener.accept(std::chrono::milliseconds(10))) == error_kind::timed_out);
  CHECK_FALSE(must(bed.listener.poll()));
}

TEST_CASE("expired limits are refused") {
  cm_bed bed;
  CHECK(failure_of(cm_route::resolve(bed.listener.address(), std::chrono::seconds(0))) ==
        error_kind::timed_out);
  const auto met = bed.route().connect(bed.prepare(), std::chrono::seconds(0));
  CHECK(met.error() == error_kind::timed_out);
}

TEST_CASE("connecting to a listener with a full backlog is retried until there is room") {
  cm_bed bed(family::ipv4, {.backlog = 1});
  connect_many(bed, 2);
}

TEST_CASE("connecting to a listener with a full backlog times out") {
  cm_bed bed(family::ipv4, {.backlog = 1});
  const auto first = must(bed.route().start_connect(bed.prepare(), patience));
  const auto second = bed.route().connect(bed.prepare(), short_limit);
  CHECK(second.error() == error_kind::timed_out);
}

TEST_CASE("a backlog out of range is refused") {
  need_manager();
  for (const int backlog : {0, -1, 1025})
    CHECK(failure_of(cm_listener::open(cm_address::any(0), {.backlog = backlog})) ==
          error_kind::invalid_input);
}

TEST_CASE("a second listener at the same port is refused") {
  cm_bed bed;
  const error e = failure_of(cm_listener::open(bed.listener.address()));
  CHECK(e == error_kind::busy);
  CHECK_THAT(e.message(),
             Catch::Contains("port " + std::to_string(bed.listener.address().port()) + " "));
}

TEST_CASE("a UC channel is refused") {
  cm_bed bed;
  const auto met =
      bed.route().connect(must(bed.device.domain.build_channel<transport::uc>().build()), patience);
  CHECK(met.error() == error_kind::invalid_input);
  CHECK_THAT(met.error().message(), Catch::Contains("only RC"));
}

TEST_CASE("a path MTU that the connection manager does not use ends the connection at both ends") {
  cm_bed bed;
  auto asking =
      must(bed.route().start_connect(must(bed.channel().path_mtu(256).build()), patience));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(bed.prepare(), patience));
  CHECK(drive_until_failure(asking, answering) == error_kind::mismatch);
  CHECK(refusal(answering) == error_kind::not_connected);
}

TEST_CASE("moved-from objects are refused") {
  cm_bed bed;
  // NOLINTBEGIN(bugprone-use-after-move)
  cm_route route = bed.route();
  const cm_route taken = std::move(route);
  CHECK(failure_of(route.context()) == error_kind::invalid_input);
  CHECK(std::move(route).connect(bed.prepare(), patience).error() == error_kind::invalid_input);
  prepared_channel prepared = bed.prepare();
  const prepared_channel kept = std::move(prepared);
  CHECK(bed.route().connect(std::move(prepared), patience).error() == error_kind::invalid_input);
  const cm_listener listener = std::move(bed.listener);
  CHECK(failure_of(bed.listener.accept(patience)) == error_kind::invalid_input);
  CHECK(bed.listener.file_descriptor() == -1);
  CHECK(bed.listener.address().is_empty());
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("a session that was moved from is refused at either end") {
  cm_bed bed;
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  auto answering = must(must(bed.listener.accept(patience)).start_accept(bed.prepare(), patience));
  // NOLINTBEGIN(bugprone-use-after-move)
  auto asks = std::move(asking);
  auto answers = std::move(answering);
  for (auto* each : {&asking, &answering}) {
    CHECK(failure_of(each->poll()) == error_kind::invalid_input);
    CHECK(failure_of(std::move(*each).finish()) == error_kind::invalid_input);
    CHECK(failure_of(std::move(*each).run()) == error_kind::invalid_input);
  }
  // NOLINTEND(bugprone-use-after-move)
  drive(asks, answers);
}

TEST_CASE("the result of a session or of a resolver can be taken only once") {
  cm_bed bed;
  // NOLINTBEGIN(bugprone-use-after-move)
  auto resolver = must(cm_resolver::start(bed.listener.address(), patience));
  wait_until([&] { return must(resolver.poll()); }, "the route");
  auto asking = must(must(std::move(resolver).finish()).start_connect(bed.prepare(), patience));
  CHECK(failure_of(std::move(resolver).finish()) == error_kind::invalid_input);
  CHECK(failure_of(resolver.poll()) == error_kind::invalid_input);
  auto answering = must(must(bed.listener.accept(patience)).start_accept(bed.prepare(), patience));
  drive(asking, answering);
  for (auto* each : {&asking, &answering}) {
    CHECK(must(std::move(*each).finish()).connection.state() == cm_state::connected);
    CHECK(failure_of(std::move(*each).finish()) == error_kind::invalid_input);
    CHECK(failure_of(each->poll()) == error_kind::invalid_input);
  }
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("calls on an empty connection return an error") {
  cm_connection none;
  CHECK(none.state() == cm_state::empty);
  CHECK(none.file_descriptor() == -1);
  CHECK(failure_of(none.disconnect()) == error_kind::not_connected);
  CHECK(failure_of(none.poll()) == error_kind::not_connected);
  CHECK(failure_of(none.wait_event(patience)) == error_kind::not_connected);
  CHECK(failure_of(none.wait_for_end(patience)) == error_kind::not_connected);
}

TEST_CASE("failures leave no descriptors behind") {
  cm_bed bed;
  const auto try_all = [&] {
    static_cast<void>(cm_route::resolve(elsewhere(), patience));
    static_cast<void>(cm_listener::open(elsewhere()));
    auto asking = must(bed.route().start_connect(bed.prepare(), patience));
    must(must(bed.listener.accept(patience)).reject());
    static_cast<void>(refusal(asking));
    static_cast<void>(connect(bed));
  };
  try_all();  // the first call opens descriptors that stay open
  const std::ptrdiff_t before = descriptors();
  for (int i = 0; i < 10; ++i) try_all();
  CHECK(descriptors() == before);
}
