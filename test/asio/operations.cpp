// SPDX-License-Identifier: Apache-2.0
// Operations of a channel with the completion tokens of Asio.

#include "net.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

using namespace verbspp;
using namespace verbspp::test;
using namespace net::experimental::awaitable_operators;

namespace {

template <class Function>
concept AsioAwaits = requires(asio_channel& link, Function function) {
  link.async_await(std::move(function), use_awaitable);
};
// A cancelled wait would have no memory to return.
using owning_lease = lease<access::remote_write, registered_buffer<>>;
static_assert(AsioAwaits<decltype([](channel& link) { return link.async_room(); })>);
static_assert(!AsioAwaits<decltype([](channel&, owning_lease* mine = nullptr) {
  return std::move(*mine).async_revoke();
})>);
// A blocking call.
static_assert(!AsioAwaits<decltype([](channel& link) { return link.send({}); })>);

}  // namespace

TEST_CASE("every operation with shared memory can be awaited through Asio") {
  const testbed bed;
  asio_pair ends(bed);
  const auto mine = share_bytes(bed, 256, 1);
  const auto theirs = share_bytes(bed, 256);
  const auto back = share_bytes(bed, 256);
  const auto arrived = share_bytes(bed, 256);
  const auto remote = must(theirs.remote());
  bool has_sent = false, has_received = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    asio_channel& left = ends.left;
    must(co_await left.async_write({.elements = mine, .remote = remote}, use_awaitable));
    const auto read =
        must(co_await left.async_read({.elements = back, .remote = remote}, use_awaitable));
    CHECK(read.byte_count() == 256);
    CHECK(holds(back, 1));
    const auto word = must(remote_word::at(remote, 8));
    const auto result = must(back.part(0, 8));
    must(co_await left.async_fetch_and_add({.result = result, .remote = word, .addend = 1},
                                           use_awaitable));
    std::uint64_t before = 0;
    std::memcpy(&before, back.data(), 8);
    must(co_await left.async_compare_and_swap(
        {.result = result, .remote = word, .expected = before + 1, .desired = before},
        use_awaitable));
    // Other forms in which these calls accept memory.
    must(co_await left.async_write(mine, {.remote = must(theirs.remote())}, use_awaitable));
    must(co_await left.async_read(back, {.remote = remote}, use_awaitable));
    must(co_await left.async_send({.elements = mine}, use_awaitable));
    must(co_await left.async_send(must(mine.part(0, 16)), use_awaitable));
    must(co_await left.async_send({.elements = inline_payload(std::string_view("inline"))},
                                  use_awaitable));
    must(co_await left.async_send(mine, {.immediate = immediate_data(7)}, use_awaitable));
    has_sent = true;
  });
  spawn(ends.context, [&]() -> awaitable<void> {
    asio_channel& right = ends.right;
    const auto first = must(co_await right.async_receive({.elements = arrived}, use_awaitable));
    CHECK(first.byte_count() == 256);
    CHECK(holds(arrived, 1));
    for (const std::uint32_t length : {16U, 6U}) {
      const auto next = must(co_await right.async_receive(arrived, use_awaitable));
      CHECK(next.byte_count() == length);
    }
    const auto last = must(co_await right.async_receive(arrived, use_awaitable));
    CHECK(last.immediate() == immediate_data(7));
    has_received = true;
  });
  run(ends.context);
  CHECK(has_sent);
  CHECK(has_received);
  CHECK(holds(theirs, 1));
  CHECK(mine.is_only());
  CHECK(arrived.is_only());
}

TEST_CASE("operations of Asio return the buffers that they owned") {
  const testbed bed;
  asio_pair ends(bed);
  const auto theirs = share_bytes(bed, 64);
  auto mine = fill_buffer(bed, 64, 3);
  const auto* const address = mine.data();
  bool has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    const auto remote = must(theirs.remote());
    auto [written, after] =
        co_await ends.left.async_write(std::move(mine), {.remote = remote}, use_awaitable);
    must(written);
    auto [sent, last] = co_await ends.left.async_send(std::move(after), use_awaitable);
    must(sent);
    auto [read, filled] =
        co_await ends.left.async_read(std::move(last), {.remote = remote}, use_awaitable);
    must(read);
    CHECK(filled.data() == address);
    CHECK(holds(filled, 3));
    has_ended = true;
  });
  bool has_received = false;
  ends.right.async_receive(fill_buffer(bed, 64, 4), [&](finished<registered_buffer<>> done) {
    must(done.result);
    CHECK(holds(done.memory, 3));
    has_received = true;
  });
  run(ends.context);
  CHECK(has_ended);
  CHECK(has_received);
  CHECK(holds(theirs, 3));
}

TEST_CASE("several kinds of Asio completion tokens get the result") {
  const testbed bed;
  asio_pair ends(bed);
  const auto mine = share_bytes(bed, 32, 5);
  const auto theirs = share_bytes(bed, 32);
  const auto remote = must(theirs.remote());
  asio_channel& left = ends.left;
  const async_write_operation write{.elements = mine, .remote = remote};
  int called = 0;
  left.async_write(write, [&called](const transport_result<completed_work>& done) {
    must(done);
    ++called;
  });
  CHECK(called == 0);
  auto future = left.async_write(write, use_future);
  auto with_memory = left.async_write(fill_buffer(bed, 32, 5), {.remote = remote}, use_future);
  auto later = left.async_write(mine, {.remote = remote}, deferred);
  // A handler that can only be moved.
  left.async_write(write, [&called, owner = std::make_unique<int>(1)](
                              const transport_result<completed_work>& done) {
    must(done);
    called += *owner;
  });
  spawn(ends.context, [&]() -> awaitable<void> {
    auto [done] = co_await left.async_write(write, as_tuple(use_awaitable));
    must(done);
    ++called;
  });
  run(ends.context);
  CHECK(called == 3);
  // A deferred operation begins only when it is called with its handler.
  std::move(later)([&called](const transport_result<completed_work>& done) {
    must(done);
    ++called;
  });
  run(ends.context);
  CHECK(called == 4);
  must(future.get());
  auto [done, buffer] = with_memory.get();
  must(done);
  CHECK(holds(buffer, 5));
  CHECK(holds(theirs, 5));
}

TEST_CASE("handlers of Asio may throw exceptions") {
  const testbed bed;
  asio_pair ends(bed);
  const auto theirs = share_bytes(bed, 8);
  bool is_called = false;
  ends.left.async_write(theirs, {.remote = must(theirs.remote())},
                        [](const auto&) { throw failure(__FILE__, __LINE__, "thrown"); });
  ends.left.async_write(theirs, {.remote = must(theirs.remote())}, [&is_called](const auto& done) {
    must(done);
    is_called = true;
  });
  CHECK_THROWS_AS(run(ends.context), failure);
  run(ends.context);
  CHECK(is_called);
}

TEST_CASE("coroutines of Asio at both ends exchange messages of a pool") {
  const testbed bed;
  asio_pair ends(bed);
  const auto pool = must(message_pool::create(bed.domain, 128, 64));
  inbox requests = must(inbox::open(ends.right.link(), pool));
  inbox answers = must(inbox::open(ends.left.link(), pool));
  constexpr int rounds = 300;
  int answered = 0;
  spawn(ends.context, [&]() -> awaitable<void> {
    for (int i = 0; i < rounds; ++i) {
      auto request = must(co_await ends.right.async_wait(requests, use_awaitable));
      must(co_await ends.right.async_send(std::move(request), use_awaitable));
    }
  });
  spawn(ends.context, [&]() -> awaitable<void> {
    for (int i = 0; i < rounds; ++i) {
      auto request = must(pool.take());
      must(request.assign(std::as_bytes(std::span(&i, 1))));
      // Awaits the send of the request and the arrival of the answer at the same time.
      auto [sent, answer] = co_await (ends.left.async_send(std::move(request), use_awaitable) &&
                                      ends.left.async_wait(answers, use_awaitable));
      must(sent);
      const message arrived = must(std::move(answer));
      if (std::ranges::equal(arrived.bytes(), std::as_bytes(std::span(&i, 1)))) ++answered;
    }
  });
  run(ends.context);
  CHECK(answered == rounds);
}

TEST_CASE("operations of Asio wait for room in order") {
  const testbed bed;
  asio_pair ends(bed);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right.link(), pool));
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz";
  for (std::size_t i = 0; i < letters.size(); ++i)
    ends.left.async_send({.elements = inline_payload(letters.substr(i, 1))},
                         [](const auto& done) { must(done); });
  std::string text;
  spawn(ends.context, [&]() -> awaitable<void> {
    while (text.size() < letters.size()) {
      const auto arrived = must(co_await ends.right.async_wait(messages, use_awaitable));
      text += std::to_integer<char>(arrived.bytes()[0]);
    }
  });
  run(ends.context);
  CHECK(text == letters);
}

TEST_CASE("Asio awaits room in the send queue") {
  const testbed bed;
  asio_pair ends(bed);
  const auto length = ends.left.link().capacities().max_send_work_requests;
  for (std::uint32_t i = 0; i < length; ++i)
    ends.left.async_send({.elements = inline_payload(i)}, [](const auto& done) { must(done); });
  int rooms = 0;
  const auto whole_queue = [=](channel& link) { return link.async_room(length); };
  ends.left.async_await(whole_queue, [&](const result<void>& done) {
    must(done);
    CHECK(ends.left.link().outstanding() == 0);
    ++rooms;
  });
  spawn(ends.context, [&]() -> awaitable<void> {
    must(co_await ends.left.async_await(whole_queue, use_awaitable));
    ++rooms;
    const auto refused = co_await ends.left.async_await(
        [=](channel& link) { return link.async_room(length + 1); }, use_awaitable);
    CHECK(failure_of(refused) == error_kind::invalid_input);
    ++rooms;
  });
  ends.context.poll();
  CHECK(rooms == 0);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  const inbox messages = must(inbox::open(ends.right.link(), pool));
  run(ends.context);
  CHECK(rooms == 3);
}

TEST_CASE("Asio awaits leases, and their revocation") {
  constexpr access_flags rights = all_rights | access::window_bind;
  const testbed bed;
  asio_pair ends(bed);
  asio_channel& left = ends.left;
  const auto source = share_bytes(bed, 64, 9);
  const auto shared = must(must(registered_buffer<rights>::allocate(bed.domain, 64)).share());
  bool has_windows = true, has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    auto first = co_await left.async_await(
        [&](channel& link) { return link.async_lease<access::remote_write>(shared); },
        use_awaitable);
    has_windows = first.has_value() || first.error() != error_kind::not_supported;
    if (!has_windows) co_return;
    auto granted = must(std::move(first));
    must(
        co_await ends.right.async_write(source, {.remote = must(granted.remote())}, use_awaitable));
    CHECK(holds(shared, 9));
    must(
        co_await left.async_await([&](channel&) { return granted.async_revoke(); }, use_awaitable));
    CHECK_FALSE(granted.is_open());
    has_ended = true;
  });
  run(ends.context);
  if (!has_windows) SKIP("the device has no memory windows of type 2");
  CHECK(has_ended);
  CHECK(shared.is_only());
  // The function owns a buffer, and moves it into the lease.
  using owning = lease<access::remote_write, registered_buffer<rights>>;
  auto owned = must(registered_buffer<rights>::allocate(bed.domain, 64));
  const auto* const address = owned.data();
  std::optional<owning> granted;
  left.async_await(
      [buffer = std::move(owned)](channel& link) mutable {
        return link.async_lease<access::remote_write>(std::move(buffer));
      },
      [&](result<owning> done) { granted.emplace(must(std::move(done))); });
  CHECK_FALSE(granted.has_value());
  run(ends.context);
  REQUIRE(granted.has_value());
  CHECK(granted->memory().data() == address);
  auto [done, back] = std::move(*granted).revoke(patience);
  must(done);
  CHECK(back.data() == address);
}

TEST_CASE("Asio awaits posted requests, scopes and streams") {
  const testbed bed;
  asio_pair ends(bed);
  const auto theirs = share_bytes(bed, 32);
  bool has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    asio_channel& left = ends.left;
    const auto remote = must(theirs.remote());
    const auto shared = share_bytes(bed, 32, 1);
    auto kept = must(left.link().post_write(shared, {.remote = remote}));
    must(co_await left.async_await([&](channel&) { return kept.async_wait(); }, use_awaitable));
    CHECK(holds(theirs, 1));
    const auto borrowed = fill_buffer(bed, 32, 3);
    async_scope scope(left.link());
    const auto element = must(borrowed.gather());
    const write_operation write{.elements = element, .remote = remote};
    must(co_await left.async_await([&](channel&) { return scope.async_write(write); },
                                   use_awaitable));
    CHECK(holds(theirs, 3));
    must(co_await left.async_await([&](channel&) { return scope.async_finish(); }, use_awaitable));
    async_stream stream(left.link());
    for (int i = 0; i < 20; ++i) {
      must(co_await left.async_await([&](channel&) { return stream.async_room(); }, use_awaitable));
      must(stream.post_write(write));
    }
    must(co_await left.async_await([&](channel&) { return stream.async_finish(); }, use_awaitable));
    has_ended = true;
  });
  run(ends.context);
  CHECK(has_ended);
}

TEST_CASE("a blocking wait does not lose the event that completes an Asio operation") {
  const testbed bed;
  const auto hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  const bool is_in_hub = GENERATE(false, true);
  asio_pair ends(is_in_hub ? connect_channels(short_channels(bed).hub(hub))
                           : connect_channels(short_channels(bed)));
  const auto theirs = share_bytes(bed, 8);
  const auto into = share_bytes(bed, 8);
  bool has_received = false;
  ends.left.async_receive(into, [&](const auto& done) {
    must(done);
    has_received = true;
  });
  net::post(ends.context, [&] {
    must(ends.right.link().send({.elements = inline_payload(1U)}, patience));
    // The receive has already completed, so this blocking call also polls the completion of the
    // receive.
    must(ends.left.link().write({.elements = inline_payload(2U), .remote = must(theirs.remote())},
                                patience));
  });
  run(ends.context);
  CHECK(has_received);
}

TEST_CASE("results that the program has not taken do not keep the loop of Asio busy") {
  const testbed bed;
  asio_pair ends(bed);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.left.link(), pool));
  must(ends.right.link().send({.elements = inline_payload(1U)}, patience));
  // The peer has posted no receive, so this send waits. The peer's message stays in `messages`,
  // because the program does not take it.
  net::cancellation_signal cancel;
  const auto memory = share_bytes(bed, 8);
  ends.left.async_send(memory, bind_cancellation_slot(cancel.slot(), [](const auto&) {}));
  CHECK(ends.context.run_for(moment) < 50);
  cancel.emit(net::cancellation_type::terminal);
  run(ends.context);
  REQUIRE(messages.poll().has_value());
}

TEST_CASE("the limit of a channel ends operations of Asio") {
  const testbed bed;
  asio_pair ends(connect_channels(short_channels(bed).default_limit(short_limit)));
  const auto memory = share_bytes(bed, 8);
  std::optional<transport_result<completed_work>> late;
  ends.left.async_send(memory, [&](const auto& done) { late = done; });
  run(ends.context);
  REQUIRE(late.has_value());
  CHECK(error(failure_of(*late)) == error_kind::timed_out);
  CHECK_FALSE(ends.left.link().is_connected());
  // A broken channel refuses operations. Even then, the handlers are called later, and not
  // immediately.
  std::optional<transport_result<completed_work>> refused;
  ends.left.async_send(memory, [&](const auto& done) { refused = done; });
  CHECK_FALSE(refused.has_value());
  run(ends.context);
  REQUIRE(refused.has_value());
  CHECK(refused->has_error());
  CHECK(memory.is_only());
}

TEST_CASE("operations of Asio end if the peer has closed its channel") {
  const testbed bed;
  auto pair = connect_channels(short_channels(bed));
  asio_pair ends(std::move(pair));
  const auto memory = share_bytes(bed, 8);
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.left.link(), pool));
  must(ends.right.link().close());
  bool has_failed = false, has_ended = false;
  spawn(ends.context, [&]() -> awaitable<void> {
    const auto sent = co_await ends.left.async_send(memory, use_awaitable);
    has_failed = sent.has_error();
  });
  spawn(ends.context, [&]() -> awaitable<void> {
    const auto arrived = co_await ends.left.async_wait(messages, use_awaitable);
    has_ended = arrived.has_error();
  });
  run(ends.context);
  CHECK(has_failed);
  CHECK(has_ended);
  CHECK(memory.is_only());
}

TEST_CASE("a channel that only spins refuses operations of Asio") {
  const testbed bed;
  asio_pair ends(connect_channels(short_channels(bed).waiting(wait_mode::spin())));
  const auto memory = share_bytes(bed, 8);
  std::optional<transport_result<completed_work>> refused;
  ends.left.async_send(memory, [&](const auto& done) { refused = done; });
  run(ends.context);
  REQUIRE(refused.has_value());
  CHECK(error(failure_of(*refused)) == error_kind::not_supported);
}
