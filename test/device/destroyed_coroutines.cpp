// SPDX-License-Identifier: Apache-2.0
// Coroutines that are destroyed while they await requests, and one that destroys its channel.

#include "coroutines.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

std::string_view text_in(const shared_bytes& memory, std::size_t length) {
  return {reinterpret_cast<const char*>(memory.data()), length};
}

}  // namespace

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
  finish_all(ends.left, "the sends");
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
  // No request waits for room any more, so the next one is posted immediately.
  const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
  const inbox messages = must(inbox::open(ends.right, pool));
  for (routine& each : filling) must(run(each, ends.left));
  const routine next = send_text(ends.left, "next");
  CHECK(ends.left.outstanding() == 1);
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
  finish_all(left, "the writes");
  CHECK(mine.is_only());
  CHECK(holds(theirs, 7));
  CHECK(left.is_connected());
}

TEST_CASE("coroutines that are destroyed at random moments damage no message and lose no memory") {
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
    while (auto next = messages.poll()) {
      const message arrived = must(std::move(*next));
      CHECK(std::ranges::equal(arrived.bytes(), pattern(arrived.size(), 9)));
    }
    if (round % (rounds / 8) != rounds / 16) continue;
    // Renewing the channels ends the coroutines that are still waiting, with an error.
    const endpoint right_end = must(ends.right.renew());
    const endpoint left_end = must(left.renew());
    for (auto& each : running) CHECK((!each || each->is_done()));
    static_cast<void>(messages.poll());
    must(left.handshake(right_end));
    must(ends.right.handshake(left_end));
  }
  running.clear();
  wait_until(
      [&] {
        left.poll();
        while (auto next = messages.poll()) static_cast<void>(must(std::move(*next)));
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
