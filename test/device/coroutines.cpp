// SPDX-License-Identifier: Apache-2.0
// Coroutines that await requests of a channel.

#include "coroutines.hpp"

#include "failing_verb.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

TEST_CASE_METHOD(two_channels, "every operation with shared memory can be awaited by a coroutine") {
  const auto mine = share_bytes(bed, 256, 1);
  const auto theirs = share_bytes(bed, 256);
  const auto back = share_bytes(bed, 256);
  const auto message = share_bytes(bed, 256);
  const auto everything = [&]() -> routine {
    VERBSPP_CO_TRY(remote, theirs.remote());
    VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    VERBSPP_CO_TRY(read, co_await left.async_read({.elements = back, .remote = remote}));
    CHECK(read.byte_count() == 256);
    CHECK(read.operation() == work_operation::rdma_read);
    VERBSPP_CO_TRY(word, remote_word::at(remote, 8));
    VERBSPP_CO_TRY(result, back.part(0, 8));
    VERBSPP_CO_TRYV(
        co_await left.async_fetch_and_add({.result = result, .remote = word, .addend = 1}));
    std::uint64_t before = 0;
    std::memcpy(&before, back.data(), 8);
    VERBSPP_CO_TRYV(co_await left.async_compare_and_swap(
        {.result = result, .remote = word, .expected = before + 1, .desired = 7}));
    // Other forms in which these calls accept memory.
    VERBSPP_CO_TRYV(co_await left.async_write(mine, {.remote = must(theirs.remote())}));
    VERBSPP_CO_TRYV(co_await left.async_read(back, {.remote = remote}));
    VERBSPP_CO_TRYV(co_await left.async_send({.elements = mine, .solicited = true}));
    VERBSPP_CO_TRYV(co_await left.async_send(must(mine.part(0, 16))));
    co_return success();
  };
  const auto receiving = [&]() -> routine {
    VERBSPP_CO_TRY(first, co_await right.async_receive({.elements = message}));
    CHECK(first.byte_count() == 256);
    CHECK(holds(message, 1));
    VERBSPP_CO_TRY(second, co_await right.async_receive(message));
    CHECK(second.byte_count() == 16);
    co_return success();
  };
  auto receiver = receiving();
  auto sender = everything();
  wait_until(
      [&] {
        left.poll();
        right.poll();
        return sender.is_done() && receiver.is_done();
      },
      "both coroutines");
  must(sender.get());
  must(receiver.get());
  CHECK(holds(theirs, 1));
  CHECK(holds(back, 1));
  CHECK(mine.is_only());
  CHECK(message.is_only());
}

TEST_CASE_METHOD(two_channels, "an awaited request returns the buffer that it owned") {
  auto mine = must(registered_buffer<>::allocate(bed.domain, 64));
  std::ranges::copy(pattern(64, 3), mine.begin());
  const auto* const address = mine.data();
  const auto theirs = share_bytes(bed, 64);
  auto place = must(registered_buffer<>::allocate(bed.domain, 64));
  const auto receiving = [&]() -> eager<transport_result<registered_buffer<>>> {
    auto [received, memory] = co_await right.async_receive(std::move(place));
    VERBSPP_CO_TRYV(received);
    co_return std::move(memory);
  };
  const auto writing = [&]() -> eager<transport_result<registered_buffer<>>> {
    auto [written, after] =
        co_await left.async_write(std::move(mine), {.remote = must(theirs.remote())});
    VERBSPP_CO_TRYV(written);
    auto [sent, last] = co_await left.async_send(std::move(after));
    VERBSPP_CO_TRYV(sent);
    co_return std::move(last);
  };
  auto receiver = receiving();
  auto writer = writing();
  const auto again = must(std::move(run(writer, left)));
  CHECK(again.data() == address);
  CHECK(holds(must(std::move(run(receiver, right))), 3));
  CHECK(holds(theirs, 3));
}

TEST_CASE("awaited requests wait for room in the queue in order") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  constexpr char letters[] = "abcdefghijklmnopqrstuvwxyz";
  std::vector<routine> senders;
  for (std::size_t i = 0; i < 26; ++i)
    senders.push_back(send_text(ends.left, std::string_view(letters + i, 1)));
  inbox messages = must(inbox::open(ends.right, pool));
  for (std::size_t i = 0; i < 26; ++i) {
    std::optional<message> arrived;
    wait_until(
        [&] {
          ends.left.poll();
          if (auto next = messages.poll()) arrived = must(std::move(*next));
          return arrived.has_value();
        },
        "a message");
    CHECK(std::to_integer<char>(arrived->bytes()[0]) == letters[i]);
  }
  for (routine& each : senders) must(run(each, ends.left));
}

TEST_CASE_METHOD(two_channels, "an awaited request may finish before a coroutine awaits it") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  auto early = left.async_write(mine, {.remote = remote});
  finish_all(left, "the write");
  CHECK_FALSE(early.await_suspend(std::noop_coroutine()));
  must(early.await_resume());
  CHECK(holds(theirs, 1));
  CHECK(mine.is_only());
}

TEST_CASE_METHOD(two_channels, "awaiting a request again after its result was taken is an error") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  const auto await_again = [&](const wait_limit& limit) {
    auto write = left.async_write({.elements = mine, .remote = remote}, limit);
    finish_all(left, "the write");
    must(write.await_resume());
    for (int i = 0; i < 2; ++i) {
      CHECK_FALSE(write.await_suspend(std::noop_coroutine()));
      CHECK(error(failure_of(write.await_resume())) == error_kind::invalid_input);
    }
  };
  await_again(detail::default_limit);
  await_again(patience);
  CHECK(mine.is_only());
}

TEST_CASE("a request that waits for room may outlive its channel") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  std::vector<routine> filling;
  while (ends.left.outstanding() < ends.left.capacities().max_send_work_requests)
    filling.push_back(send_text(ends.left, "one"));
  const auto shared = share_bytes(bed, 8);
  auto waiting = ends.left.async_send(shared);
  CHECK_FALSE(shared.is_only());
  {
    const channel gone = std::move(ends.left);
  }
  CHECK(shared.is_only());
  CHECK_FALSE(waiting.await_suspend(std::noop_coroutine()));
  CHECK(waiting.await_resume().has_error());
}

TEST_CASE("an awaited request whose limit expires breaks the channel") {
  const testbed bed;
  const bool is_default = GENERATE(true, false);
  auto builder = bed.domain.build_channel().max_inline_data(64);
  channel_pair ends =
      is_default ? connect_channels(builder.default_limit(short_limit)) : connect_channels(builder);
  CHECK(ends.left.deadline() == wait_limit::time_point::max());
  auto limited = is_default ? send_text(ends.left, "late")
                            : send_text(ends.left, "late", wait_limit(short_limit));
  auto patient = send_text(ends.left, "later", wait_limit(10 * soon));
  CHECK(ends.left.deadline() <= clock::now() + short_limit);
  const auto before = clock::now();
  CHECK(error(failure_of(run(limited, ends.left))) == error_kind::timed_out);
  CHECK(clock::now() - before < soon);
  CHECK_FALSE(ends.left.is_connected());
  CHECK(ends.left.failure()->root() == error_kind::timed_out);
  // The request with the longer limit was flushed when the channel broke.
  const auto flushed = failure_of(run(patient, ends.left));
  REQUIRE(flushed.work() != nullptr);
  CHECK(flushed.work()->status() == work_status::flushed);
  CHECK(ends.left.deadline() == wait_limit::time_point::max());
}

TEST_CASE_METHOD(two_channels,
                 "an awaited request whose limit has been reached before is not posted") {
  const auto mine = share_bytes(bed, 64, 1);
  const auto theirs = share_bytes(bed, 64);
  const auto remote = must(theirs.remote());
  auto owned = must(registered_buffer<>::allocate(bed.domain, 8));
  const auto write = [&](wait_limit limit) -> routine {
    auto [done, memory] = co_await left.async_write(std::move(owned), {.remote = remote}, limit);
    owned = std::move(memory);
    CHECK(owned.size() == 8);
    CHECK_FALSE(done.has_value());
    VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}, limit));
    co_return success();
  };
  std::stop_source stop;
  stop.request_stop();
  CHECK(failure_of(write(std::chrono::seconds(0)).get()) == error_kind::timed_out);
  CHECK(failure_of(write(clock::now() - std::chrono::seconds(1)).get()) == error_kind::timed_out);
  CHECK(failure_of(write(wait_limit(patience, stop.get_token())).get()) == error_kind::cancelled);
  CHECK(left.outstanding() == 0);
  CHECK(left.is_connected());
  CHECK(mine.is_only());
}

TEST_CASE("a stop request ends an awaited request in the same way as a limit") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  std::stop_source stop;
  auto sender = send_text(ends.left, "stopped", stop.get_token());
  ends.left.poll();
  CHECK_FALSE(sender.is_done());
  stop.request_stop();
  CHECK(error(failure_of(run(sender, ends.left))) == error_kind::cancelled);
}

TEST_CASE("a limit that expires during a wait for room in the queue leaves the channel connected") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  std::vector<routine> filling;
  while (ends.left.outstanding() < ends.left.capacities().max_send_work_requests)
    filling.push_back(send_text(ends.left, "one"));
  auto waiting = send_text(ends.left, "late", wait_limit(short_limit));
  CHECK(error(failure_of(run(waiting, ends.left))) == error_kind::timed_out);
  CHECK(ends.left.is_connected());
}

TEST_CASE("a request that fails ends all coroutines that await the channel") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.left, pool));
  const auto mine = share_bytes(bed, 8);
  auto revoked = share_bytes(bed, 8);
  const auto remote = must(revoked.remote());
  revoked = mine;  // destroys the buffer
  const auto writing = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends.left.async_write({.elements = mine, .remote = remote}));
    co_return success();
  };
  auto reader = await_message(messages);
  auto writer = writing();
  auto sender = send_text(ends.left, "flushed");
  const auto failed = failure_of(run(writer, ends.left));
  REQUIRE(failed.work() != nullptr);
  CHECK(failed.work()->status() == work_status::remote_access_error);
  CHECK_FALSE(run(sender, ends.left).has_value());
  CHECK_FALSE(run(reader, ends.left).has_value());
  // Further calls fail immediately.
  auto refused = send_text(ends.left, "refused");
  CHECK(refused.is_done());
}

TEST_CASE(
    "destroying, closing or renewing a channel resumes the coroutines that await its requests") {
  const testbed bed;
  std::optional<channel_pair> ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends->left, pool));
  const auto mine = share_bytes(bed, 8);
  const auto receiving = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends->left.async_receive({.elements = mine}));
    co_return success();
  };
  auto reader = await_message(messages);
  std::vector<routine> senders;
  for (int i = 0; i < 6; ++i) senders.push_back(send_text(ends->left, "text"));
  const int how = GENERATE(0, 1, 2);
  if (how == 0)
    ends.reset();
  else if (how == 1)
    must(ends->left.close());
  else
    must(ends->left.renew());
  for (routine& each : senders) {
    REQUIRE(each.is_done());
    CHECK_FALSE(each.get().has_value());
  }
  REQUIRE(reader.is_done());
  CHECK_FALSE(reader.get().has_value());
  if (how == 1) CHECK(receiving().is_done());
}

TEST_CASE("a coroutine may destroy or renew the channel that is being renewed") {
  const testbed bed;
  std::optional<channel_pair> ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends->left, pool));
  const bool destroys = GENERATE(true, false);
  const auto waiting = [&]() -> routine {
    const auto arrived = co_await messages.async_wait();
    CHECK_FALSE(arrived.has_value());
    if (destroys)
      ends.reset();
    else
      must(ends->left.renew());
    co_return success();
  };
  const auto reader = waiting();
  const auto renewed = ends->left.renew();
  CHECK(reader.is_done());
  if (destroys)
    CHECK(failure_of(renewed) == error_kind::not_connected);
  else
    CHECK(must(renewed) == ends->left.endpoint());
}

TEST_CASE("renewing a channel ends all waits for messages, however many there are") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.left, pool));
  std::vector<eager<result<message>>> readers;
  for (int i = 0; i < 3000; ++i) readers.push_back(await_message(messages));
  must(ends.left.renew());
  CHECK(std::ranges::all_of(readers, [](const auto& each) { return each.is_done(); }));
}

TEST_CASE("awaiting a request that cannot be posted returns an error") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  auto shared = share_bytes(bed, 8);
  const auto gone = [&]() -> routine {
    auto moved_from = shared;
    const auto kept = std::move(moved_from);
    // NOLINTNEXTLINE(bugprone-use-after-move)
    VERBSPP_CO_TRYV(co_await ends.left.async_send({.elements = moved_from}));
    co_return success();
  };
  CHECK(error(failure_of(gone().get())) == error_kind::invalid_input);
  auto buffer = must(registered_buffer<>::allocate(bed.domain, 8));
  const auto empty = [&]() -> routine {
    channel none;
    auto [sent, memory] = co_await none.async_send(std::move(buffer));
    CHECK(memory.size() == 8);
    VERBSPP_CO_TRYV(sent);
    co_return success();
  };
  CHECK(error(failure_of(empty().get())) == error_kind::not_connected);
  const auto hub = must(channel_hub::create(bed.domain, {.channels = 2, .completions = 64}));
  channel_pair without_queues = connect_channels(
      bed.domain.build_channel().hub(hub).max_send_work_requests(0).max_receive_work_requests(0));
  const auto send = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await without_queues.left.async_send({.elements = shared}));
    co_return success();
  };
  const auto receive = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await without_queues.left.async_receive({.elements = shared}));
    co_return success();
  };
  CHECK(error(failure_of(send().get())) == error_kind::invalid_input);
  CHECK(error(failure_of(receive().get())) == error_kind::invalid_input);
}

TEST_CASE("a hub wakes coroutines whose request has completed or whose limit has expired") {
  const testbed bed;
  const wait_mode mode = GENERATE(wait_mode::spin(), wait_mode::sleep());
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
  const message_pool pool = must(message_pool::create(bed.domain, 64, 64));
  channel_pair ends = connect_channels(
      bed.domain.build_channel().hub(hub).max_receive_work_requests(16).max_inline_data(64).waiting(
          mode));
  inbox messages = must(inbox::open(ends.right, pool));
  // One loop serves both channels.
  const auto run_hub = [&](auto& coroutine) -> auto& {
    std::array<arrival, 4> slots;
    wait_until(
        [&] {
          const auto arrived = hub.wait(slots, short_limit);
          if (!arrived.has_value()) {
            CHECK(arrived.error() == error_kind::timed_out);
            return coroutine.is_done();
          }
          for (const arrival& each : arrived.value())
            (each.source == ends.left.id() ? ends.left : ends.right).poll();
          return coroutine.is_done();
        },
        "the coroutine");
    return coroutine.get();
  };
  auto receiver = await_message(messages, wait_limit::forever());
  auto sender = send_text(ends.left, "text", wait_limit(patience));
  CHECK(must(std::move(run_hub(receiver))).size() == 4);
  must(run_hub(sender));
  // No message arrives, so only the hub's timer can end these waits.
  for (int i = 0; i < 3; ++i) {
    auto limited = await_message(messages, short_limit);
    auto longer = await_message(messages, 2 * short_limit);
    CHECK(failure_of(std::move(run_hub(limited))) == error_kind::timed_out);
    CHECK(failure_of(std::move(run_hub(longer))) == error_kind::timed_out);
  }
  CHECK(ends.right.is_connected());
}

TEST_CASE("a hub resumes the coroutines of a broken channel although the device flushed nothing") {
  const testbed bed;
  const channel_hub hub = must(channel_hub::create(bed.domain));
  channel_pair ends =
      connect_channels(bed.domain.build_channel().hub(hub).max_receive_work_requests(4));
  const auto memory = share_bytes(bed, 8);
  const auto receiving = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends.left.async_receive({.elements = memory}));
    co_return success();
  };
  auto receiver = receiving();
  {
    const failing_verb modify("ibv_modify_qp", EIO);
    // The peer has no receive, so the limit breaks the channel.
    CHECK(error(failure_of(ends.left.send({}, short_limit))) == error_kind::timed_out);
  }
  CHECK_FALSE(receiver.is_done());
  must(hub.poll());
  REQUIRE(receiver.is_done());
  CHECK_FALSE(receiver.get().has_value());
}
