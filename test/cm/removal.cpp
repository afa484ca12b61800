// SPDX-License-Identifier: Apache-2.0
/// \file
/// Devices that are removed while connections on them exist or are being established.

#include "../device/failing_device.hpp"
#include "cm_bed.hpp"

#include <string>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Checks the error that an object reports after its device was removed.
void check_removed(const error& why) {
  INFO(why);
  CHECK(why == error_kind::not_found);
  CHECK_THAT(why.message(), Catch::Contains("the device was removed"));
}

}  // namespace

TEST_CASE_METHOD(two_cm_ends,
                 "both ends of a connection are notified that their device is removed") {
  const bool waits = GENERATE(true, false);
  const failing_device failing(waits ? "after:20ms=device-fatal" : "device-fatal");
  for (cm_connection* each : {&pair.client.connection, &pair.server.connection}) {
    if (waits) {
      check_removed(failure_of(each->wait_for_end(patience)));
    } else {
      CHECK(must(each->wait_event(patience)) == cm_event::device_removal);
      check_removed(failure_of(each->wait_for_end(patience)));
    }
    CHECK(each->state() == cm_state::removed);
    check_removed(failure_of(each->disconnect()));
    CHECK_FALSE(must(each->poll()));
  }
}

TEST_CASE_METHOD(two_cm_ends,
                 "a channel that watches its connection is notified that the device is removed") {
  channel& waiting = pair.server.channel;
  waiting.watch(pair.server.connection.file_descriptor());
  const buffer<> inbox(bed.device.domain, 8);
  auto received = must(waiting.post_receive({.elements = inbox.scatter()}));
  const failing_device failing("after:20ms=device-fatal");
  CHECK_FALSE(received.wait(patience).has_value());
  CHECK(waiting.failure());
  check_removed(failure_of(pair.server.connection.wait_for_end(patience)));
}

TEST_CASE(
    "a listener and a route and both sides of a request are notified of their device's removal") {
  cm_bed bed;
  cm_route route = bed.route();
  channel prepared(bed.prepare());
  auto accepted = must(bed.route().start_connect(bed.prepare(), patience));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(bed.prepare(), patience));
  CHECK_FALSE(must(answering.poll()));
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  const failing_device failing("device-fatal");
  check_removed(failure_of(std::move(asking).run()));
  check_removed(failure_of(std::move(answering).run()));
  check_removed(failure_of(bed.listener.accept(patience)));
  CHECK_FALSE(std::move(route).connect(prepared, patience).has_value());
}

TEST_CASE("a removed device has no routes and no address") {
  cm_bed bed;
  const cm_address address = bed.listener.address();
  const failing_device failing("device-fatal");
  CHECK(failure_of(cm_route::resolve(address, patience)) == error_kind::not_found);
  CHECK(failure_of(cm_listener::open(address.with_port(0))) == error_kind::not_found);
}

TEST_CASE("connections work again after the device returns") {
  cm_bed bed;
  {
    cm_pair lost = connect(bed);
    const failing_device failing("device-fatal");
    check_removed(failure_of(lost.client.connection.wait_for_end(patience)));
    check_removed(failure_of(bed.listener.accept(patience)));
  }
  bed.listener = must(cm_listener::open(bed.listener.address()));
  cm_pair pair = connect(bed);
  check_talk(bed, pair.client.channel, pair.server.channel);
}
