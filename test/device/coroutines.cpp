// SPDX-License-Identifier: Apache-2.0
// Coroutines that await requests of a channel, or messages of an inbox.

#include "../eager.hpp"
#include "channels.hpp"
#include "failing_verb.hpp"
#include <verbspp/coroutine.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using outcome = transport_result<void>;
using routine = eager<outcome>;

/// Polls the channel until the coroutine has ended.
template <class Outcome>
Outcome& run(eager<Outcome>& coroutine, channel& link) {
  wait_until(
      [&] {
        link.poll();
        return coroutine.is_done();
      },
      "the coroutine");
  return coroutine.get();
}

routine send_text(channel& link, std::string_view text) {
  VERBSPP_CO_TRYV(co_await link.async_send({.elements = inline_payload(text)}));
  co_return success();
}
routine send_text(channel& link, std::string_view text, wait_limit limit) {
  VERBSPP_CO_TRYV(co_await link.async_send({.elements = inline_payload(text)}, limit));
  co_return success();
}

/// Returns two connected channels with short queues, which can also send inline.
channel_pair connect_short(const testbed& bed) {
  return connect_channels(bed.domain.build_channel()
                              .max_send_work_requests(4)
                              .max_receive_work_requests(16)
                              .max_inline_data(64));
}

std::string_view text_in(const shared_bytes& memory, std::size_t length) {
  return {reinterpret_cast<const char*>(memory.data()), length};
}

}  // namespace

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

TEST_CASE("coroutines at both ends exchange messages of a pool") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 128, 64));
  inbox requests = must(inbox::open(ends.right, pool));
  inbox answers = must(inbox::open(ends.left, pool));
  constexpr int rounds = 300;
  const auto serving = [&]() -> routine {
    for (int i = 0; i < rounds; ++i) {
      VERBSPP_CO_TRY(request, co_await requests.async_wait());
      VERBSPP_CO_TRYV(co_await ends.right.async_send(std::move(request)));
    }
    co_return success();
  };
  const auto asking = [&]() -> routine {
    for (int i = 0; i < rounds; ++i) {
      VERBSPP_CO_TRY(request, pool.take());
      VERBSPP_CO_TRYV(request.assign(std::as_bytes(std::span(&i, 1))));
      VERBSPP_CO_TRYV(co_await ends.left.async_send(std::move(request)));
      VERBSPP_CO_TRY(answer, co_await answers.async_wait(patience));
      CHECK(std::ranges::equal(answer.bytes(), std::as_bytes(std::span(&i, 1))));
    }
    co_return success();
  };
  auto server = serving();
  auto client = asking();
  wait_until(
      [&] {
        ends.left.poll();
        ends.right.poll();
        return client.is_done() && server.is_done();
      },
      "the echo");
  must(client.get());
  must(server.get());
}

TEST_CASE("a coroutine that is destroyed leaves its memory to the request") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 1, 64));
  auto shared = share_bytes(bed, 32, 5);
  auto buffer = must(registered_buffer<>::allocate(bed.domain, 32));
  std::ranges::copy(pattern(32, 5), buffer.begin());
  auto taken = must(pool.take());
  must(taken.assign(pattern(32, 5)));
  const auto with_elements = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends.left.async_send({.elements = shared}));
    co_return success();
  };
  const auto with_buffer = [&]() -> routine {
    auto [sent, memory] = co_await ends.left.async_send(std::move(buffer));
    VERBSPP_CO_TRYV(sent);
    co_return success();
  };
  const auto with_message = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends.left.async_send(std::move(taken)));
    co_return success();
  };
  {
    // The peer has posted no receive, so the requests stay in flight.
    const routine first = with_elements();
    const routine second = with_buffer();
    const routine third = with_message();
    ends.left.poll();
    CHECK_FALSE(first.is_done());
  }
  CHECK(ends.left.outstanding() == 3);
  CHECK_FALSE(shared.is_only());
  CHECK_FALSE(pool.take().has_value());
  const auto arrived = share_bytes(bed, 32);
  for (int i = 0; i < 3; ++i) {
    std::ranges::fill(arrived, std::byte{});
    must(ends.right.receive({.elements = must(arrived.scatter())}, patience));
    CHECK(holds(arrived, 5));
  }
  wait_until(
      [&] {
        ends.left.poll();
        return ends.left.outstanding() == 0;
      },
      "the sends");
  CHECK(shared.is_only());
  CHECK(pool.take().has_value());
}

TEST_CASE("a coroutine that is destroyed while it waits for room in the queue posts nothing") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  std::vector<routine> filling;
  while (ends.left.outstanding() < ends.left.capacities().max_send_work_requests)
    filling.push_back(send_text(ends.left, "one"));
  const auto before = ends.left.outstanding();
  auto shared = share_bytes(bed, 8);
  const auto sending = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends.left.async_send({.elements = shared}));
    co_return success();
  };
  {
    const routine waiting = sending();
    CHECK_FALSE(shared.is_only());
    ends.left.poll();
  }
  CHECK(shared.is_only());
  CHECK(ends.left.outstanding() == before);
  // No request waits for room any more, so the next one is posted at once.
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  const inbox messages = must(inbox::open(ends.right, pool));
  for (routine& each : filling) must(run(each, ends.left));
  const routine next = send_text(ends.left, "next");
  CHECK(ends.left.outstanding() == 1);
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
          if (auto next = messages.next()) arrived = must(std::move(*next));
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
  wait_until(
      [&] {
        left.poll();
        return left.outstanding() == 0;
      },
      "the write");
  CHECK_FALSE(early.await_suspend(std::noop_coroutine()));
  must(early.await_resume());
  CHECK(holds(theirs, 1));
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

TEST_CASE("a limit that expires during a wait for a message leaves the channel connected") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  const auto waiting = [&](const wait_limit limit) -> eager<result<message>> {
    co_return co_await messages.async_wait(limit);
  };
  auto limited = waiting(short_limit);
  std::stop_source stop;
  auto stopped = waiting(stop.get_token());
  CHECK(failure_of(std::move(run(limited, ends.right))) == error_kind::timed_out);
  CHECK_FALSE(stopped.is_done());
  stop.request_stop();
  CHECK(failure_of(std::move(run(stopped, ends.right))) == error_kind::cancelled);
  auto sender = send_text(ends.left, "after");
  auto patient = waiting(patience);
  CHECK(must(std::move(run(patient, ends.right))).size() == 5);
  must(run(sender, ends.left));
}

TEST_CASE("coroutines that wait for one inbox get its messages in order") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  std::optional<inbox> messages = must(inbox::open(ends.right, pool));
  const auto waiting = [&]() -> eager<result<message>> {
    co_return co_await messages->async_wait();
  };
  std::vector<eager<result<message>>> waiters;
  for (int i = 0; i < 4; ++i) waiters.push_back(waiting());
  // An inbox may be moved while coroutines are waiting for its messages.
  inbox moved = std::move(*messages);
  for (std::size_t i = 0; i < 3; ++i) {
    auto sender = send_text(ends.left, std::string_view("123", i + 1));
    CHECK(must(std::move(run(waiters[i], ends.right))).size() == i + 1);
    must(run(sender, ends.left));
  }
  CHECK_FALSE(waiters[3].is_done());
  // When the inbox is destroyed, the waiting coroutines get an error.
  {
    const inbox last = std::move(moved);
  }
  CHECK(ends.right.deadline() <= clock::now());
  CHECK(failure_of(std::move(run(waiters[3], ends.right))) == error_kind::invalid_input);
  auto refused = waiting();
  CHECK(failure_of(std::move(refused.get())) == error_kind::invalid_input);
}

TEST_CASE("a wait for a message continues when a place returns to the pool") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 2, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  const auto waiting = [&]() -> eager<result<message>> {
    co_return co_await messages.async_wait();
  };
  std::vector<routine> senders;
  for (int i = 0; i < 3; ++i) senders.push_back(send_text(ends.left, "text"));
  auto first = waiting();
  auto second = waiting();
  const message kept = must(std::move(run(first, ends.right)));
  message released = must(std::move(run(second, ends.right)));
  auto third = waiting();
  ends.right.poll();
  CHECK_FALSE(third.is_done());
  CHECK(ends.right.deadline() <= clock::now() + std::chrono::milliseconds(10));
  static_cast<void>(message(std::move(released)));  // destroys it, which returns its place
  CHECK(run(third, ends.right).has_value());
  for (routine& each : senders) must(run(each, ends.left));
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
  const auto waiting = [&]() -> eager<result<message>> {
    co_return co_await messages.async_wait();
  };
  auto reader = waiting();
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
  const auto waiting = [&]() -> eager<result<message>> {
    co_return co_await messages.async_wait();
  };
  const auto mine = share_bytes(bed, 8);
  const auto receiving = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await ends->left.async_receive({.elements = mine}));
    co_return success();
  };
  auto reader = waiting();
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
  if (how != 2) {
    REQUIRE(reader.is_done());
    CHECK_FALSE(reader.get().has_value());
  }
  if (how == 1) CHECK(receiving().is_done());
}

TEST_CASE("a coroutine may destroy its channel") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const auto finish = [](channel link) -> routine {
    VERBSPP_CO_TRYV(
        co_await link.async_send({.elements = inline_payload(std::string_view("end"))}));
    link = channel();
    co_return success();
  };
  const auto place = share_bytes(bed, 8);
  auto receive = must(ends.right.post_receive(place));
  channel& link = ends.left;
  std::optional<channel> moved = std::move(link);
  auto last = finish(std::move(*moved));
  must(receive.wait(patience));
  CHECK(text_in(place, 3) == "end");
}

TEST_CASE_METHOD(two_channels,
                 "a coroutine that keeps the memory of its writes can be destroyed at any time") {
  const auto theirs = share_bytes(bed, 1 << 16);
  const auto mine = share_bytes(bed, 1 << 16, 7);
  const auto writing = [](channel& link, shared_bytes from, shared_bytes to) -> routine {
    for (;;)
      VERBSPP_CO_TRYV(co_await link.async_write({.elements = from, .remote = must(to.remote())}));
  };
  for (std::uint32_t round = 0; round < repetitions(200); ++round) {
    std::vector<routine> writers;
    for (int i = 0; i < 4; ++i) writers.push_back(writing(left, mine, theirs));
    for (std::uint32_t i = 0; i < round % 7; ++i) left.poll();
  }
  wait_until(
      [&] {
        left.poll();
        return left.outstanding() == 0;
      },
      "the writes");
  CHECK(mine.is_only());
  CHECK(holds(theirs, 7));
  CHECK(left.is_connected());
}

TEST_CASE("awaiting a request with unusable memory returns an error") {
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
  const auto waiting = [&](const wait_limit limit) -> eager<result<message>> {
    co_return co_await messages.async_wait(limit);
  };
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
  auto receiver = waiting(wait_limit::forever());
  auto sender = send_text(ends.left, "text", wait_limit(patience));
  CHECK(must(std::move(run_hub(receiver))).size() == 4);
  must(run_hub(sender));
  // No message arrives, so only the hub's timer can end these waits.
  for (int i = 0; i < 3; ++i) {
    auto limited = waiting(short_limit);
    auto longer = waiting(2 * short_limit);
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

TEST_CASE("coroutines that are destroyed at random moments lose neither memory nor messages") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t below) {
    return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random);
  };
  const testbed bed;
  channel_pair ends = connect_short(bed);
  channel& left = ends.left;
  const message_pool pool = must(message_pool::create(bed.domain, 64, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  const auto theirs = share_bytes(bed, 4096, 9);
  const auto remote = must(theirs.remote());
  const auto write_shared = [&](std::uint32_t length) -> routine {
    const auto from = share_bytes(bed, length, 9);
    const auto to = must(remote.slice(0, length));
    for (;;) VERBSPP_CO_TRYV(co_await left.async_write({.elements = from, .remote = to}));
  };
  const auto read_owned = [&](std::uint32_t length) -> routine {
    auto into = must(registered_buffer<>::allocate(bed.domain, length));
    const auto from = must(remote.slice(0, length));
    for (;;) {
      auto [read, filled] = co_await left.async_read(std::move(into), {.remote = from});
      into = std::move(filled);
      VERBSPP_CO_TRYV(read);
    }
  };
  const auto send_message = [&](std::uint32_t length) -> routine {
    for (;;) {
      VERBSPP_CO_TRY(taken, pool.take());
      VERBSPP_CO_TRYV(taken.assign(pattern(length % 64, 9)));
      VERBSPP_CO_TRYV(co_await left.async_send(std::move(taken)));
    }
  };
  const auto read_shared = [&](std::uint32_t length) -> routine {
    const auto into = share_bytes(bed, length);
    const auto from = must(remote.slice(0, length));
    for (;;) VERBSPP_CO_TRYV(co_await left.async_read(into, {.remote = from}, patience));
  };
  std::vector<std::optional<routine>> running(12);
  const std::uint32_t rounds = repetitions(20000);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    auto& one = running[draw(12)];
    const std::uint32_t length = 1 + draw(4096);
    switch (draw(12)) {
      case 0:
        one.reset();
        break;
      case 1:
        one.emplace(write_shared(length));
        break;
      case 2:
        one.emplace(read_owned(length));
        break;
      case 3:
        one.emplace(send_message(length));
        break;
      case 4:
        one.emplace(read_shared(length));
        break;
      case 5:
        std::this_thread::yield();
        break;
      default:
        left.poll();
        break;
    }
    while (auto next = messages.next()) {
      const message arrived = must(std::move(*next));
      CHECK(std::ranges::equal(arrived.bytes(), pattern(arrived.size(), 9)));
    }
    if (round % (rounds / 8) != rounds / 16) continue;
    // Renewing the channels ends the coroutines that are still waiting, with an error.
    const endpoint right_end = must(ends.right.renew());
    const endpoint left_end = must(left.renew());
    for (auto& each : running) CHECK((!each || each->is_done()));
    static_cast<void>(messages.next());
    must(left.handshake(right_end));
    must(ends.right.handshake(left_end));
  }
  running.clear();
  wait_until(
      [&] {
        left.poll();
        while (auto next = messages.next()) static_cast<void>(must(std::move(*next)));
        return left.outstanding() == 0;
      },
      "the last requests");
  CHECK(holds(theirs, 9));
  {
    const inbox closed = std::move(messages);
  }
  must(ends.right.close());
  CHECK(pool.available() == pool.size());
}

namespace {

/// Coroutines that write until `rounds` reaches `enough`. They outnumber the places in the send
/// queue, so posting has to take completions to make room, which makes other coroutines ready to be
/// resumed.
struct many_writers : two_channels {
  many_writers() {
    for (unsigned i = 0; i < 64; ++i) writers.push_back(write());
  }
  routine write() {
    const auto remote = must(theirs.remote());
    while (++rounds < enough) {
      const auto posted = left.post_write(mine, {.remote = remote});
      VERBSPP_CO_TRYV(co_await left.async_write({.elements = mine, .remote = remote}));
    }
    co_return success();
  }
  [[nodiscard]] bool are_done() const {
    return std::ranges::all_of(writers, [](const routine& each) { return each.is_done(); });
  }

  unsigned enough = 50'000;
  shared_bytes mine = share_bytes(bed, 64, 1);
  shared_bytes theirs = share_bytes(bed, 64);
  unsigned rounds = 0;
  std::vector<routine> writers{};
};

}  // namespace

TEST_CASE_METHOD(
    many_writers,
    "poll returns even if the coroutines that it resumes take completions themselves") {
  enough = 10'000;
  unsigned most = 0;
  wait_until(
      [&] {
        const unsigned before = rounds;
        left.poll();
        most = std::max(most, rounds - before);
        return are_done();
      },
      "the coroutines");
  for (routine& each : writers) must(each.get());
  CHECK(most < enough / 4);
}

TEST_CASE_METHOD(many_writers, "a limit expires although each poll resumes other coroutines") {
  const auto place = share_bytes(bed, 64);
  const auto receive = [&]() -> routine {
    VERBSPP_CO_TRYV(co_await left.async_receive({.elements = place}, std::chrono::milliseconds(1)));
    co_return success();
  };
  routine receiving = receive();
  for (unsigned polls = 0; polls < 40 && !receiving.is_done(); ++polls) left.poll();
  CHECK(receiving.is_done());
  CHECK(rounds < enough);
}
