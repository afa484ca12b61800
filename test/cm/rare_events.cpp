// SPDX-License-Identifier: Apache-2.0
/// \file
/// Events that the devices under test rarely or never report: an address has moved to another
/// device, as happens with bonded interfaces, or a connection could not be established. So the
/// tests turn other events into these.

#include "cm_bed.hpp"

#include <dlfcn.h>
#include <rdma/rdma_cma.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

namespace {

/// The type of the events that are changed, or a negative number if no event is changed.
std::atomic<int> changed_type{-1};
std::atomic<rdma_cm_event_type> type_of_changed{};
std::atomic<int> status_of_changed{0};
std::atomic<int> errno_of_changed{0};

}  // namespace

extern "C" int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  using function = int (*)(rdma_event_channel*, rdma_cm_event**);
  static const auto next = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "rdma_get_cm_event"));
  const int outcome = next(channel, event);
  if (outcome == 0 && (*event)->event == changed_type.load()) {
    (*event)->event = type_of_changed;
    (*event)->status = status_of_changed;
    errno = errno_of_changed;
  }
  return outcome;
}

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// While an object of this class exists, each event of the given type is reported as one of another
/// type.
class changed_events {
 public:
  explicit changed_events(rdma_cm_event_type instead_of,
                          rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_CHANGE, int status = 0,
                          int errnum = 0) {
    type_of_changed = type;
    status_of_changed = status;
    errno_of_changed = errnum;
    changed_type = instead_of;
  }
  ~changed_events() { changed_type = -1; }
  changed_events(const changed_events&) = delete;
  changed_events& operator=(const changed_events&) = delete;
};

}  // namespace

TEST_CASE_METHOD(two_cm_ends,
                 "a connected end is notified of an address change and stays connected") {
  const changed_events moves(RDMA_CM_EVENT_DISCONNECTED);
  must(pair.client.connection.disconnect());
  cm_connection& hears = pair.server.connection;
  CHECK(must(hears.wait_event(patience)) == cm_event::address_change);
  CHECK(hears.state() == cm_state::connected);
}

TEST_CASE("an end that is connecting is notified of an address change") {
  cm_bed bed;
  const bool is_asking = GENERATE(true, false);
  const changed_events moves(is_asking ? RDMA_CM_EVENT_CONNECT_RESPONSE
                                       : RDMA_CM_EVENT_ESTABLISHED);
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(bed.prepare(), patience));
  std::optional<error> why;
  wait_until(
      [&] {
        for (auto* each : {&asking, &answering}) {
          const auto done = each->poll();
          if (!done.has_value() && !why) why = done.error();
        }
        return why.has_value();
      },
      "either end to fail");
  INFO(*why);
  CHECK(*why == error_kind::not_connected);
  CHECK_THAT(why->message(), Catch::Contains("the address has moved to another device"));
}

TEST_CASE("a route lookup is notified of an address change") {
  cm_bed bed;
  const changed_events moves(GENERATE(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED));
  const auto found = cm_route::resolve(bed.listener.address(), patience);
  CHECK(found.error() == error_kind::not_connected);
  CHECK_THAT(found.error().message(), Catch::Contains("resolve the route again"));
}

TEST_CASE("a connection that could not be established is reported with its errno") {
  cm_bed bed;
  const int status = GENERATE(0, -ENOMEM);
  const changed_events fails(RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_ERROR, status);
  auto asking = must(bed.route().start_connect(bed.prepare(), patience));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(bed.prepare(), patience));
  const error why = drive_until_failure(asking, answering);
  CHECK(why.native_errno() == (status == 0 ? EPROTO : ENOMEM));
  CHECK_THAT(why.message(), Catch::Contains("could not set up the connection"));
}

TEST_CASE("a step that failed in librdmacm is reported with the errno that librdmacm has set") {
  cm_bed bed;
  const int errnum = GENERATE(ENOMEM, 0);
  const changed_events fails(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, -1, errnum);
  const auto found = cm_route::resolve(bed.listener.address(), patience);
  CHECK(found.error().native_errno() == (errnum != 0 ? errnum : EPROTO));
}

TEST_CASE("an event that a step does not expect is named") {
  cm_bed bed;
  const changed_events is_odd(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  const auto found = cm_route::resolve(bed.listener.address(), patience);
  CHECK(found.error().native_errno() == EPROTO);
  CHECK_THAT(found.error().message(), Catch::Contains("unexpected event: time-wait exit"));
}
