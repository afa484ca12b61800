// SPDX-License-Identifier: Apache-2.0
/// \file
/// Asynchronous events that the library reads during its own waits. The library notifies its
/// listeners of these events, and keeps the events so that the program can read them later.

#include "channels.hpp"
#include "device.hpp"
#include "failing_verb.hpp"
#include <verbspp/device/detail/async_listener.hpp>

#include <fcntl.h>
#include <poll.h>

#include <optional>

using namespace verbspp;
using namespace verbspp::test;
using verbspp::detail::async_listener;

namespace {

ibv_async_event about_port(ibv_event_type type, int port = 1) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = port;
  return event;
}

/// Injects an event, and makes the listener read it in the same way as the library's own waits do.
void keep(async_listener& listener, const ibv_async_event& event) {
  inject(event);
  must(listener.look());
}

/// Injects an error event of the queue, and makes the listener read it. The device did not report
/// this event, so it must not be counted as acknowledged.
void keep_overrun(async_listener& listener, const completion_queue& queue) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = queue.native_handle();
  keep(listener, event);
  --queue.native_handle()->async_events_completed;
}
/// Injects an access error event of the queue pair, and makes the listener read it.
void keep_access_error(async_listener& listener, const connected& pair) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_ACCESS_ERR;
  event.element.qp = pair.native_handle();
  keep(listener, event);
  --pair.native_handle()->events_completed;
}

/// A fixture with a listener that is not yet attached to a context.
struct one_listener {
  const testbed bed{};
  async_listener listener;
};

[[nodiscard]] std::optional<async_event_type> heard_by(const async_listener& listener) {
  const auto heard = listener.heard();
  CHECK(heard.has_value() == listener.has_heard());
  if (!heard) return std::nullopt;
  return heard->type();
}

[[nodiscard]] bool is_readable(int file_descriptor, std::chrono::milliseconds length = {}) {
  pollfd entry{file_descriptor, POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(length.count())) == 1;
}

/// Drains the send queue, which makes the device report an event. Waits until the event is
/// reported, unless an earlier event is still unread.
void drain(const context& device, const connected& pair) {
  const bool is_first = !is_readable(device.native_handle()->async_fd);
  start_draining(pair);
  if (is_first) CHECK(is_readable(device.native_handle()->async_fd, patience));
}

}  // namespace

TEST_CASE_METHOD(one_listener,
                 "a listener is notified of failures and the program still gets each event") {
  listener.listen(bed.context, {.port = 1});
  async_listener other;
  other.listen(bed.context, {.completion_queue = bed.left_queue.native_handle()});
  CHECK_FALSE(listener.has_heard());
  inject(about_port(IBV_EVENT_PORT_ERR));
  CHECK(must(bed.context.poll_async_event()));
  CHECK(heard_by(listener) == async_event_type::port_error);
  CHECK_FALSE(other.has_heard());
  CHECK_FALSE(must(bed.context.poll_async_event()));

  keep(other, about_port(IBV_EVENT_PORT_ERR));
  const auto kept = must(bed.context.poll_async_event());
  REQUIRE(kept);
  CHECK(kept->type() == async_event_type::port_error);
  CHECK(kept->port() == port_number(1));
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE("a listener is notified of its own objects and of the device only") {
  const testbed bed;
  const auto [left, right] = connect(bed);
  async_listener of_left;
  of_left.listen(bed.context, {.queue_pair = left.native_handle(), .port = 1});
  async_listener of_right;
  of_right.listen(bed.context, {.queue_pair = right.native_handle(),
                                .completion_queue = bed.left_queue.native_handle(),
                                .port = 2});
  keep_access_error(of_right, left);
  CHECK(heard_by(of_left) == async_event_type::queue_pair_access_error);
  CHECK(of_left.heard()->concerns(left));
  keep(of_left, about_port(IBV_EVENT_PORT_ERR));
  CHECK_FALSE(of_right.has_heard());
  keep_overrun(of_left, bed.right_queue);
  CHECK_FALSE(of_right.has_heard());
  keep_overrun(of_left, bed.left_queue);
  CHECK(heard_by(of_right) == async_event_type::completion_queue_error);
  keep(of_left, about_port(IBV_EVENT_DEVICE_FATAL, 0));
  CHECK(heard_by(of_left) == async_event_type::device_fatal);
  CHECK(heard_by(of_right) == async_event_type::device_fatal);
}

TEST_CASE_METHOD(
    one_listener,
    "a listener keeps the most severe failure and forgets a port error once the port is up") {
  const detail::async_elements about{.completion_queue = bed.left_queue.native_handle(), .port = 1};
  listener.listen(bed.context, about);
  keep(listener, about_port(IBV_EVENT_LID_CHANGE));
  CHECK_FALSE(listener.has_heard());
  keep(listener, about_port(IBV_EVENT_PORT_ERR));
  CHECK(heard_by(listener) == async_event_type::port_error);
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE));
  CHECK_FALSE(listener.has_heard());
  keep(listener, about_port(IBV_EVENT_PORT_ERR));
  keep_overrun(listener, bed.left_queue);
  CHECK(heard_by(listener) == async_event_type::completion_queue_error);
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE));
  CHECK(heard_by(listener) == async_event_type::completion_queue_error);
  listener.stop();
  CHECK(heard_by(listener) == async_event_type::completion_queue_error);
  listener.listen(bed.context, about);
  CHECK_FALSE(listener.has_heard());
}

TEST_CASE_METHOD(one_listener, "a listener can be notified of further ports") {
  listener.listen(bed.context, {.port = 1});
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 2));
  CHECK_FALSE(listener.has_heard());
  listener.hear_port(2);
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 2));
  CHECK(heard_by(listener) == async_event_type::port_error);
  // An event for the first port.
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 1));
  CHECK(heard_by(listener) == async_event_type::port_error);
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 2));
  CHECK_FALSE(listener.has_heard());
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 1));
  CHECK(heard_by(listener) == async_event_type::port_error);
  listener.listen(bed.context, {});
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 1));
  CHECK_FALSE(listener.has_heard());
}

TEST_CASE_METHOD(one_listener,
                 "a port that is down is still reported when another one is up again") {
  listener.listen(bed.context, {.port = 1});
  listener.hear_port(2);
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 1));
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 2));
  CHECK(listener.heard()->port() == port_number(1));
  const auto times = listener.times_heard();
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 1));
  REQUIRE(heard_by(listener) == async_event_type::port_error);
  CHECK(listener.heard()->port() == port_number(2));
  CHECK(listener.times_heard() == times + 1);
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 2));
  CHECK_FALSE(listener.has_heard());
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 2));
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 2));
  keep(listener, about_port(IBV_EVENT_PORT_ERR, 1));
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE, 1));
  CHECK_FALSE(listener.has_heard());
}

TEST_CASE("a listener that starts after its device has failed is notified of the failure") {
  const testbed bed;
  inject(about_port(IBV_EVENT_DEVICE_FATAL, 0));
  CHECK(must(bed.context.poll_async_event()));
  async_listener late;
  late.listen(bed.context, {});
  CHECK(heard_by(late) == async_event_type::device_fatal);
}

TEST_CASE_METHOD(one_listener,
                 "kept events are returned in order and before those still in the device") {
  listener.listen(bed.context, {});
  for (const auto type : {IBV_EVENT_LID_CHANGE, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE})
    keep(listener, about_port(type));
  inject(about_port(IBV_EVENT_GID_CHANGE));
  for (const auto type : {async_event_type::lid_change, async_event_type::port_error,
                          async_event_type::port_active, async_event_type::gid_change}) {
    const auto event = must(bed.context.wait_async_event(patience));
    REQUIRE(event);
    CHECK(event->type() == type);
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE_METHOD(one_listener,
                 "if too many events are kept, the oldest of the lowest severity are dropped") {
  listener.listen(bed.context, {});
  keep(listener, about_port(IBV_EVENT_PORT_ERR));
  keep(listener, about_port(IBV_EVENT_SM_CHANGE));
  for (std::size_t i = 0; i < detail::kept_async_events; ++i)
    keep(listener, about_port(i % 2 == 0 ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_LID_CHANGE));
  std::vector<async_event_type> kept;
  while (const auto event = must(bed.context.poll_async_event())) kept.push_back(event->type());
  REQUIRE(kept.size() == detail::kept_async_events);
  // The event about the subnet manager and the first event about the active port were dropped,
  // because they were the oldest events of the lowest severity.
  CHECK(kept[0] == async_event_type::port_error);
  CHECK(kept[1] == async_event_type::lid_change);
  CHECK(kept[2] == async_event_type::port_active);
  CHECK(kept.back() == async_event_type::lid_change);
}

TEST_CASE_METHOD(one_listener,
                 "the file descriptor of asynchronous events is readable while an event is kept") {
  listener.listen(bed.context, {});
  keep(listener, about_port(IBV_EVENT_PORT_ERR));
  const int watched = bed.context.async_event_file_descriptor();
  CHECK(watched == bed.context.async_event_file_descriptor());
  CHECK(is_readable(watched));
  CHECK(must(bed.context.poll_async_event()));
  CHECK_FALSE(is_readable(watched));
  keep(listener, about_port(IBV_EVENT_PORT_ERR));
  keep(listener, about_port(IBV_EVENT_PORT_ACTIVE));
  CHECK(is_readable(watched));
  CHECK(must(bed.context.poll_async_event()));
  CHECK(is_readable(watched));
  CHECK(must(bed.context.poll_async_event()));
  CHECK_FALSE(is_readable(watched));
  // The descriptor is also readable while the device has unread events.
  const auto [left, right] = connect(bed);
  drain(bed.context, left);
  CHECK(is_readable(watched, patience));
  CHECK(must(bed.context.poll_async_event()));
  CHECK_FALSE(is_readable(watched));
}

TEST_CASE_METHOD(one_listener,
                 "kept events of an object are dropped when the object is destroyed") {
  listener.listen(bed.context, {});
  const auto [left, right] = connect(bed);
  {
    const auto [gone, other] = connect(bed);
    drain(bed.context, gone);
    must(listener.look());
    drain(bed.context, left);
    must(listener.look());
    CHECK(is_readable(bed.context.async_event_file_descriptor()));
  }
  const auto event = must(bed.context.poll_async_event());
  REQUIRE(event);
  CHECK(event->concerns(left));
  CHECK_FALSE(must(bed.context.poll_async_event()));
  {
    const auto queue = must(completion_queue::create(bed.context, 4));
    keep_overrun(listener, queue);
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
  {
    const channel_pair ends = connect_channels(bed);
    ibv_async_event refused{};
    refused.event_type = IBV_EVENT_QP_ACCESS_ERR;
    refused.element.qp = ends.left.native_handle();
    keep(listener, refused);
    --ends.left.native_handle()->events_completed;
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
  {
    const auto pool = must(message_pool::create(bed.domain, 8, 64));
    const auto hub = supported(
        channel_hub::create(bed.domain, pool, {.channels = 1, .completions = 256, .receives = 4}),
        shared_receive_queues);
    const auto served = must(bed.domain.build_channel().hub(hub).build());
    ibv_async_event broken{};
    broken.event_type = IBV_EVENT_SRQ_ERR;
    broken.element.srq = served.native_handle()->srq;
    keep(listener, broken);
    --broken.element.srq->events_completed;
  }
  CHECK_FALSE(must(bed.context.poll_async_event()));
}

TEST_CASE("listeners do not read a borrowed context that is in blocking mode") {
  const testbed bed;
  const context borrowed =
      must(context::from_native(bed.context.native_handle(), ownership::borrowed));
  async_listener listener;
  listener.listen(borrowed, {.port = 1});
  const int flags = ::fcntl(bed.context.native_handle()->async_fd, F_GETFL);
  REQUIRE(::fcntl(bed.context.native_handle()->async_fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
  inject(about_port(IBV_EVENT_PORT_ERR));
  must(listener.look());
  CHECK_FALSE(listener.has_heard());
  REQUIRE(::fcntl(bed.context.native_handle()->async_fd, F_SETFL, flags) == 0);
  // The context has left blocking mode, so the listener reads the event.
  must(listener.look());
  CHECK(heard_by(listener) == async_event_type::port_error);
  CHECK(must(borrowed.poll_async_event()));
}
