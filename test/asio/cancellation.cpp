// SPDX-License-Identifier: Apache-2.0
// Operations with Asio that are cancelled, and contexts and channels that are destroyed.

#include "net.hpp"

#include <chrono>
#include <memory>
#include <optional>

using namespace verbspp;
using namespace verbspp::test;
using namespace net::experimental::awaitable_operators;
using namespace std::chrono_literals;

namespace {

using work = transport_result<completed_work>;

/// A handler that stores the result.
template <class Result>
auto store(std::optional<Result>& into) {
  return [&into](Result done) { into.emplace(std::move(done)); };
}

/// Receives a message of 32 bytes at the right end, and polls the left end until its request has
/// finished.
void receive_late(const testbed& bed, asio_pair& ends, unsigned seed) {
  const auto into = share_bytes(bed, 32);
  must(ends.right.link().receive({.elements = must(into.scatter())}, patience));
  CHECK(holds(into, seed));
  wait_until(
      [&] {
        ends.left.poll();
        return ends.left.link().outstanding() == 0;
      },
      "the send");
}

constexpr access_flags leasable = all_rights | access::window_bind;

/// Two channels. The left one has a lease, and its send queue is full of requests that cannot
/// finish, because the peer has posted no receive.
struct full_asio_pair : asio_pair {
  explicit full_asio_pair(const testbed& bed)
      : asio_pair(bed),
        memory(must(must(registered_buffer<leasable>::allocate(bed.domain, 64)).share())) {
    auto first = left.link().lease<access::remote_write>(memory);
    if (first.has_error()) {
      REQUIRE(first.error() == error_kind::not_supported);
      SKIP("the device has no memory windows of type 2");
    }
    granted = must(std::move(first));
    const auto length = left.link().capacities().max_send_work_requests;
    for (std::uint32_t i = 0; i < length; ++i)
      left.async_send({.elements = inline_payload(i)}, [](const work&) {});
  }

  shared_buffer<leasable> memory;
  lease<access::remote_write> granted{};
};

}  // namespace

TEST_CASE("a cancelled operation of Asio leaves its memory to the request") {
  const testbed bed;
  asio_pair ends(bed);
  const auto shared = share_bytes(bed, 32, 5);
  std::optional<work> done;
  net::cancellation_signal cancel;
  ends.left.async_send(shared, bind_cancellation_slot(cancel.slot(), store(done)));
  // The request may already have had effects, so the operation ignores total cancellation, which
  // would promise that there were none.
  cancel.emit(net::cancellation_type::total);
  ends.context.poll();
  CHECK_FALSE(done.has_value());
  cancel.emit(net::cancellation_type::partial);
  CHECK_FALSE(done.has_value());
  run(ends.context);
  REQUIRE(done.has_value());
  CHECK(error(failure_of(*done)) == error_kind::cancelled);
  CHECK(ends.left.link().is_connected());
  CHECK_FALSE(shared.is_only());
  cancel.emit(net::cancellation_type::all);
  receive_late(bed, ends, 5);
  CHECK(shared.is_only());
}

TEST_CASE("a cancelled operation of Asio leaves a buffer that it owned to the request") {
  const testbed bed;
  asio_pair ends(bed);
  std::optional<finished<registered_buffer<>>> done;
  net::cancellation_signal cancel;
  ends.left.async_send(fill_buffer(bed, 32, 6), bind_cancellation_slot(cancel.slot(), store(done)));
  net::post(ends.context, [&] { cancel.emit(net::cancellation_type::terminal); });
  run(ends.context);
  REQUIRE(done.has_value());
  CHECK(error(failure_of(done->result)) == error_kind::cancelled);
  CHECK(done->memory.size() == 0);
  receive_late(bed, ends, 6);
}

TEST_CASE("a cancelled operation of Asio that waits for room posts nothing") {
  const testbed bed;
  asio_pair ends(bed);
  const auto shared = share_bytes(bed, 32, 7);
  const auto room = ends.left.link().capacities().max_send_work_requests;
  std::vector<std::optional<work>> filling(room);
  std::vector<net::cancellation_signal> signals(room + 1);
  for (std::uint32_t i = 0; i < room; ++i)
    ends.left.async_send({.elements = inline_payload(i)},
                         bind_cancellation_slot(signals[i].slot(), store(filling[i])));
  std::optional<work> late;
  ends.left.async_send(shared, bind_cancellation_slot(signals[room].slot(), store(late)));
  CHECK_FALSE(shared.is_only());
  for (auto& each : signals) each.emit(net::cancellation_type::terminal);
  CHECK(shared.is_only());
  run(ends.context);
  CHECK(error(failure_of(*late)) == error_kind::cancelled);
  CHECK(ends.left.link().outstanding() == room);
}

TEST_CASE("a cancelled wait for a message loses no message") {
  const testbed bed;
  asio_pair ends(bed);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right.link(), pool));
  std::optional<result<message>> cancelled;
  net::cancellation_signal cancel;
  ends.right.async_wait(messages, bind_cancellation_slot(cancel.slot(), store(cancelled)));
  net::post(ends.context, [&] { cancel.emit(net::cancellation_type::total); });
  run(ends.context);
  CHECK(failure_of(std::move(*cancelled)) == error_kind::cancelled);
  bool has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    net::steady_timer timer(co_await net::this_coro::executor, 1ms);
    auto first = co_await (ends.right.async_wait(messages, use_awaitable) ||
                           timer.async_wait(use_awaitable));
    CHECK(first.index() == 1);
    must(co_await ends.left.async_send({.elements = inline_payload(3U)}, use_awaitable));
    timer.expires_after(patience);
    auto second = co_await (ends.right.async_wait(messages, use_awaitable) ||
                            timer.async_wait(use_awaitable));
    CHECK(second.index() == 0);
    CHECK(must(std::get<0>(std::move(second))).size() == sizeof(unsigned));
    has_ended = true;
  });
  run(ends.context);
  CHECK(has_ended);
  CHECK(ends.right.link().is_connected());
}

TEST_CASE("a cancelled wait of Asio for room posts nothing, and leaves a lease open") {
  const testbed bed;
  full_asio_pair ends(bed);
  const auto shared = must(must(registered_buffer<leasable>::allocate(bed.domain, 64)).share());
  std::optional<result<void>> room, revoked;
  std::optional<result<lease<access::remote_write>>> granted;
  net::cancellation_signal first, second, third;
  ends.left.async_await([](channel& link) { return link.async_room(); },
                        bind_cancellation_slot(first.slot(), store(room)));
  ends.left.async_await([&](channel&) { return ends.granted.async_revoke(); },
                        bind_cancellation_slot(second.slot(), store(revoked)));
  ends.left.async_await(
      [&](channel& link) { return link.async_lease<access::remote_write>(shared); },
      bind_cancellation_slot(third.slot(), store(granted)));
  ends.context.poll();
  CHECK_FALSE(room.has_value());
  CHECK_FALSE(granted.has_value());
  CHECK_FALSE(shared.is_only());
  if (revoked.has_value()) SKIP("the device does not invalidate windows by requests");
  const auto before = ends.left.link().outstanding();
  net::post(ends.context, [&] {
    first.emit(net::cancellation_type::terminal);
    second.emit(net::cancellation_type::partial);
    third.emit(net::cancellation_type::terminal);
  });
  ends.context.poll();
  REQUIRE(room.has_value());
  CHECK(failure_of(*room) == error_kind::cancelled);
  REQUIRE(revoked.has_value());
  CHECK(failure_of(*revoked) == error_kind::cancelled);
  CHECK(ends.granted.is_open());
  REQUIRE(granted.has_value());
  CHECK(granted->error() == error_kind::cancelled);
  CHECK(shared.is_only());
  CHECK(ends.left.link().outstanding() == before);
  CHECK(ends.left.link().is_connected());
}

TEST_CASE("a timer of Asio ends the wait for a request") {
  const testbed bed;
  asio_pair ends(bed);
  const auto shared = share_bytes(bed, 32, 8);
  bool has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    net::steady_timer timer(co_await net::this_coro::executor, 1ms);
    const auto ended = co_await (ends.left.async_send({.elements = shared}, use_awaitable) ||
                                 timer.async_wait(use_awaitable));
    CHECK(ended.index() == 1);
    has_ended = true;
  });
  run(ends.context);
  CHECK(has_ended);
  CHECK(ends.left.link().is_connected());
  receive_late(bed, ends, 8);
  CHECK(shared.is_only());
}

TEST_CASE("operations of an asio_channel complete when the channel is destroyed") {
  const testbed bed;
  asio_pair ends(bed);
  const auto shared = share_bytes(bed, 32, 5);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  std::optional<asio_channel> left(std::move(ends.left));
  std::optional<inbox> messages = must(inbox::open(left->link(), pool));
  std::optional<work> with_shared;
  std::optional<finished<registered_buffer<>>> with_owned;
  std::optional<result<message>> waited;
  left->async_send(shared, store(with_shared));
  left->async_send(fill_buffer(bed, 32, 6), store(with_owned));
  left->async_wait(*messages, store(waited));
  ends.context.poll();
  left.reset();
  CHECK_FALSE(with_shared.has_value());
  run(ends.context);
  CHECK(with_shared->has_error());
  CHECK(with_owned->result.has_error());
  CHECK(holds(with_owned->memory, 6));
  CHECK(waited->has_error());
  CHECK(shared.is_only());
}

TEST_CASE("waits of Asio for room and leases complete when the channel is destroyed") {
  const testbed bed;
  full_asio_pair ends(bed);
  const auto shared = must(must(registered_buffer<leasable>::allocate(bed.domain, 64)).share());
  std::optional<result<void>> room, revoked;
  std::optional<result<lease<access::remote_write>>> granted;
  ends.left.async_await([](channel& link) { return link.async_room(); }, store(room));
  ends.left.async_await(
      [&](channel& link) { return link.async_lease<access::remote_write>(shared); },
      store(granted));
  ends.left.async_await([&](channel&) { return ends.granted.async_revoke(); }, store(revoked));
  ends.context.poll();
  CHECK_FALSE(room.has_value());
  CHECK_FALSE(granted.has_value());
  ends.left = asio_channel(ends.context, channel());
  CHECK_FALSE(room.has_value());
  ends.context.restart();
  ends.context.poll();
  REQUIRE(room.has_value());
  CHECK(failure_of(*room) == error_kind::not_connected);
  REQUIRE(granted.has_value());
  CHECK(granted->has_error());
  REQUIRE(revoked.has_value());
  CHECK_FALSE(ends.granted.is_open());
  CHECK(shared.is_only());
}

TEST_CASE("operations of a context that is destroyed release their memory") {
  const testbed bed;
  const auto shared = share_bytes(bed, 32, 5);
  const auto alive = std::make_shared<int>(0);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  auto pair = connect_channels(short_channels(bed));
  auto other_pair = connect_channels(short_channels(bed));
  net::io_context later;
  auto context = std::make_unique<net::io_context>();
  // This coroutine owns its channel, and waits for three operations.
  spawn(
      *context,
      [&, alive, left = asio_channel(*context, std::move(pair.left))]() mutable -> awaitable<void> {
        const auto held = alive;
        inbox messages = must(inbox::open(left.link(), pool));
        co_await (left.async_wait(messages, use_awaitable) &&
                  left.async_send(fill_buffer(bed, 32, 6), use_awaitable) &&
                  left.async_send(shared, use_awaitable));
      });
  // This channel outlives the context.
  asio_channel outside(*context, std::move(other_pair.left));
  bool is_called = false;
  outside.async_send(shared, [&, alive](const auto&) { is_called = true; });
  context->run_for(moment);
  CHECK_FALSE(shared.is_only());
  CHECK(alive.use_count() > 1);
  context.reset();
  CHECK(alive.use_count() == 1);
  CHECK_FALSE(is_called);
  outside = asio_channel(later, channel());
  CHECK(shared.is_only());
  CHECK(pool.available() == pool.size());
}
