// SPDX-License-Identifier: Apache-2.0
// Stop requests for senders.

#include "event_loop.hpp"
#include "senders.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace verbspp::test::senders {

namespace {

/// Fills the send queue with sends that do not finish, because the peer has posted no receive.
void fill(channel& link) {
  while (link.outstanding() < link.capacities().max_send_work_requests)
    static_cast<void>(must(link.post_send({})));
}

}  // namespace

TEST_CASE_METHOD(two_channels, "a sender that is stopped before its start posts nothing") {
  std::stop_source stop;
  stop.request_stop();
  int calls = 0;
  running send(as_sender([&] {
                 ++calls;
                 return left.async_send({});
               }),
               stop.get_token());
  send.start();
  CHECK(send.seen.stops == 1);
  CHECK(calls == 0);
  CHECK(left.outstanding() == 0);
}

TEST_CASE_METHOD(two_channels, "a stopped async_finish ends its wait and leaves the scope open") {
  async_scope scope(left);
  must(scope.post_send({}));
  std::stop_source stop;
  running finish(as_sender([&] { return scope.async_finish(); }), stop.get_token());
  finish.start();
  left.poll();
  CHECK_FALSE(finish.seen.is_done());
  stop.request_stop();
  left.poll();
  CHECK(finish.seen.stops == 1);
  CHECK(left.is_connected());
  auto arriving = must(right.post_receive({}));
  running again(as_sender([&] { return scope.async_finish(); }));
  again.start();
  complete(again, left);
  CHECK(again.seen.values == 1);
  must(arriving.wait(patience));
}

TEST_CASE_METHOD(two_channels, "a sender may end while another one of its channel is stopped") {
  std::stop_source first_stop;
  std::stop_source second_stop;
  std::optional<running<decltype(send_text(left, ""))>> first;
  first.emplace(send_text(left, "first"), first_stop.get_token());
  running second(send_text(left, "second"), second_stop.get_token());
  first->start();
  second.start();
  first_stop.request_stop();
  // Relaxed, so that ThreadSanitizer does not regard the stop request as finished before the end of
  // the first sender.
  std::atomic<bool> is_stopped{false};
  std::jthread other([&] {
    second_stop.request_stop();
    is_stopped.store(true, std::memory_order_relaxed);
  });
  wait_until([&] { return is_stopped.load(std::memory_order_relaxed); }, "the stop request");
  first.reset();
  left.poll();
  CHECK(second.seen.stops == 1);
}

TEST_CASE("a sender that is stopped while it waits for room posts nothing") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  fill(ends.left);
  const auto before = ends.left.outstanding();
  const auto mine = share_bytes(bed, 8);
  std::stop_source stop;
  running send(as_sender([&] { return ends.left.async_send({.elements = mine}); }),
               stop.get_token());
  send.start();
  ends.left.poll();
  CHECK_FALSE(send.seen.is_done());
  CHECK_FALSE(mine.is_only());
  stop.request_stop();
  CHECK_FALSE(send.seen.is_done());
  ends.left.poll();
  CHECK(send.seen.stops == 1);
  CHECK(mine.is_only());
  CHECK(ends.left.outstanding() == before);
  CHECK(ends.left.is_connected());
}

TEST_CASE(
    "stopping a sender in flight leaves its memory with its request and keeps the channel open") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  channel& left = ends.left;
  const message_pool pool = must(message_pool::create(bed.domain, 1, 64));
  const auto shared = share_bytes(bed, 32, 5);
  auto buffer = must(registered_buffer<>::allocate(bed.domain, 32));
  std::ranges::copy(pattern(32, 5), buffer.begin());
  auto taken = must(pool.take());
  must(taken.assign(pattern(32, 5)));
  std::stop_source stop;
  {
    // The peer has posted no receive, so no request finishes.
    running first(as_sender([&] { return left.async_send({.elements = shared}); }),
                  stop.get_token());
    running second(as_sender([&, buffer = std::move(buffer)]() mutable {
                     return left.async_send(std::move(buffer));
                   }),
                   stop.get_token());
    running third(as_sender([&, taken = std::move(taken)]() mutable {
                    return left.async_send(std::move(taken));
                  }),
                  stop.get_token());
    first.start();
    second.start();
    third.start();
    left.poll();
    CHECK(first.seen.completions() + second.seen.completions() + third.seen.completions() == 0);
    stop.request_stop();
    const auto deadline = left.deadline();
    CHECK(deadline <= clock::now());
    left.poll();
    CHECK(first.seen.stops + second.seen.stops + third.seen.stops == 3);
  }
  CHECK(left.is_connected());
  CHECK(left.outstanding() == 3);
  CHECK_FALSE(shared.is_only());
  CHECK_FALSE(pool.take().has_value());
  const auto place = share_bytes(bed, 32);
  for (int i = 0; i < 3; ++i) {
    std::ranges::fill(place, std::byte{});
    must(ends.right.receive({.elements = must(place.scatter())}, patience));
    CHECK(holds(place, 5));
  }
  finish_all(left, "the sends");
  CHECK(shared.is_only());
  CHECK(pool.take().has_value());
}

TEST_CASE("a wait for a message that is stopped takes no message") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  const message_pool pool = must(message_pool::create(bed.domain, 8, 64));
  inbox messages = must(inbox::open(ends.right, pool));
  std::stop_source stop;
  running stopped(as_sender([&] { return messages.async_wait(); }), stop.get_token());
  running patient(as_sender([&] { return messages.async_wait(); }));
  stopped.start();
  patient.start();
  stop.request_stop();
  complete(stopped, ends.right);
  CHECK(stopped.seen.stops == 1);
  running send(send_text(ends.left, "text"));
  complete(send.start(), ends.left);
  complete(patient, ends.right);
  CHECK(patient.seen.arrived.has_value());
}

TEST_CASE("a stop request by another thread wakes the event loop of a channel") {
  const testbed bed;
  channel_pair ends = connect_channels(bed.domain.build_channel().waiting(wait_mode::sleep()));
  REQUIRE(ends.left.file_descriptor() >= 0);
  std::stop_source stop;
  running send(as_sender([&] { return ends.left.async_send({}); }), stop.get_token());
  send.start();
  std::thread requester = later([&] { stop.request_stop(); });
  serve(ends.left, [&] {
    ends.left.poll();
    return send.seen.is_done();
  });
  requester.join();
  CHECK(send.seen.stops == 1);
  CHECK(send.seen.completed_on == std::this_thread::get_id());
  CHECK(ends.left.is_connected());
}

TEST_CASE("a stop request by another thread wakes a wait for a channel") {
  const testbed bed;
  const bool has_hub = GENERATE(true, false);
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  const auto builder = bed.domain.build_channel().waiting(wait_mode::sleep());
  channel_pair ends = connect_channels(has_hub ? builder.hub(hub) : builder);
  std::stop_source stop;
  running send(as_sender([&] { return ends.left.async_send({}); }), stop.get_token());
  send.start();
  std::thread requester = later([&] { stop.request_stop(); });
  while (!send.seen.is_done()) {
    REQUIRE(must(ends.left.wait(patience)) == wait_end::completions);
    ends.left.poll();
  }
  requester.join();
  CHECK(send.seen.stops == 1);
}

TEST_CASE("a stop request by another thread wakes a wait for a hub") {
  const testbed bed;
  const wait_mode mode = GENERATE(wait_mode::spin(), wait_mode::sleep());
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
  channel_pair ends = connect_channels(bed.domain.build_channel().hub(hub).waiting(mode));
  std::stop_source stop;
  running send(as_sender([&] { return ends.left.async_send({}); }), stop.get_token());
  send.start();
  std::thread requester = later([&] { stop.request_stop(); });
  std::array<arrival, 4> slots;
  while (!send.seen.is_done()) {
    const auto arrived = must(hub.wait(slots, patience));
    for (const arrival& each : arrived)
      if (each.source == ends.left.id()) ends.left.poll();
  }
  requester.join();
  CHECK(send.seen.stops == 1);
  CHECK(send.seen.completed_on == std::this_thread::get_id());
}

TEST_CASE("a stop request by another thread wakes the event loop of a hub") {
  const testbed bed;
  const wait_mode mode = wait_mode::sleep();
  const channel_hub hub = must(channel_hub::create(bed.domain, {.waiting = mode}));
  channel_pair ends = connect_channels(bed.domain.build_channel().hub(hub).waiting(mode));
  std::stop_source stop;
  running send(as_sender([&] { return ends.left.async_send({}); }), stop.get_token());
  send.start();
  std::thread requester = later([&] { stop.request_stop(); });
  serve(hub, [&] {
    must(hub.poll());
    return send.seen.is_done();
  });
  requester.join();
  CHECK(send.seen.stops == 1);
}

TEST_CASE("the end of a channel completes its operations while another thread stops them") {
  const testbed bed;
  const bool has_hub = GENERATE(false, true);
  const channel_hub hub = must(channel_hub::create(bed.domain));
  for (std::uint32_t round = 0; round < repetitions(60); ++round) {
    auto builder = bed.domain.build_channel().max_send_work_requests(4);
    std::optional<channel_pair> ends =
        has_hub ? connect_channels(builder.hub(hub)) : connect_channels(builder);
    const message_pool pool = must(message_pool::create(bed.domain, 16, 64));
    std::optional<inbox> messages = must(inbox::open(ends->left, pool));
    const auto sender = as_sender([&left = ends->left] { return left.async_send({}); });
    const auto waiting = as_sender([&messages] { return messages->async_wait(); });
    std::stop_source stop;
    std::vector<std::unique_ptr<running<decltype(sender)>>> sends;
    // There are more sends than requested places in the queue, so some of them may wait for room.
    for (int i = 0; i < 8; ++i)
      sends.push_back(std::make_unique<running<decltype(sender)>>(sender, stop.get_token()));
    running receive(waiting, stop.get_token());
    for (auto& each : sends) each->start();
    receive.start();
    std::atomic<bool> is_ready{false};
    std::thread requester([&] {
      is_ready = true;
      stop.request_stop();
    });
    while (!is_ready) std::this_thread::yield();
    if (round % 4 == 0) messages.reset();
    if (round % 3 == 0)
      must(ends->left.close());
    else if (round % 3 == 1)
      must(ends->left.renew());
    else
      ends.reset();
    requester.join();
    if (ends) ends->left.poll();
    for (auto& each : sends) CHECK(each->seen.completions() == 1);
    CHECK(receive.seen.completions() == 1);
  }
}

TEST_CASE(
    "an operation completes exactly once even if another thread stops it at a random moment") {
  const testbed bed;
  channel_pair ends = connect_short(bed);
  channel& left = ends.left;
  const auto mine = share_bytes(bed, 256, 6);
  const auto theirs = share_bytes(bed, 256);
  const auto remote = must(theirs.remote());
  const auto sender = as_sender([&] { return left.async_write(mine, {.remote = remote}); });
  std::atomic<std::stop_source*> current{nullptr};
  std::atomic<bool> is_over{false};
  std::thread requester([&] {
    while (!is_over) {
      std::stop_source* const source = current;
      if (source == nullptr) {
        std::this_thread::yield();
        continue;
      }
      source->request_stop();
      current = nullptr;
    }
  });
  int values = 0;
  int stops = 0;
  int wrong = 0;
  for (std::uint32_t round = 0; round < repetitions(4000); ++round) {
    std::stop_source stop;
    running<decltype(sender)> operations[] = {
        {sender, stop.get_token()}, {sender, stop.get_token()}, {sender, stop.get_token()}};
    if (round % 3 == 0) current = &stop;
    for (auto& each : operations) each.start();
    if (round % 3 == 1) current = &stop;
    for (std::uint32_t i = 0; i < round % 5; ++i) left.poll();
    if (round % 3 == 2) current = &stop;
    wait_until(
        [&] {
          left.poll();
          return operations[0].seen.is_done() && operations[1].seen.is_done() &&
                 operations[2].seen.is_done();
        },
        "the operations");
    for (auto& each : operations) {
      if (each.seen.completions() != 1 || each.seen.errors != 0 ||
          each.seen.completed_on != std::this_thread::get_id())
        ++wrong;
      values += each.seen.values;
      stops += each.seen.stops;
    }
    while (current != nullptr) std::this_thread::yield();
  }
  is_over = true;
  requester.join();
  CHECK(wrong == 0);
  INFO(values << " values, " << stops << " stops");
  CHECK(left.is_connected());
  finish_all(left, "the writes");
  CHECK(mine.is_only());
}

TEST_CASE("senders that are stopped at random moments lose neither memory nor messages") {
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
  /// An operation of any sender, and its stop source.
  struct any_operation {
    any_operation() = default;
    any_operation(const any_operation&) = delete;
    any_operation& operator=(const any_operation&) = delete;
    virtual ~any_operation() = default;
    virtual record& seen() = 0;
    std::stop_source stop{};
  };
  const auto start = [](auto sender) -> std::unique_ptr<any_operation> {
    struct concrete : any_operation {
      explicit concrete(decltype(sender) of) : operation(std::move(of), stop.get_token()) {}
      record& seen() override { return operation.seen; }
      running<decltype(sender)> operation;
    };
    auto made = std::make_unique<concrete>(std::move(sender));
    made->operation.start();
    return made;
  };
  std::vector<std::unique_ptr<any_operation>> operations(12);
  std::uint32_t errors = 0;
  for (std::uint32_t round = 0; round < repetitions(20000); ++round) {
    auto& one = operations[draw(12)];
    const std::uint32_t length = 1 + draw(4096);
    const std::uint32_t kind = one == nullptr ? draw(5) : 5 + draw(7);
    if (kind == 0) {
      auto from = share_bytes(bed, length, 9);
      one = start(as_sender([&left, from, to = must(remote.slice(0, length))] {
        return left.async_write({.elements = from, .remote = to});
      }));
    } else if (kind == 1) {
      auto into = must(registered_buffer<>::allocate(bed.domain, length));
      one = start(as_sender(
          [&left, into = std::move(into), from = must(remote.slice(0, length))]() mutable {
            return left.async_read(std::move(into), {.remote = from});
          }));
    } else if (kind == 2) {
      if (auto taken = pool.take(); taken.has_value()) {
        must(taken.value().assign(pattern(length % 64, 9)));
        one = start(as_sender([&left, taken = std::move(taken).value()]() mutable {
          return left.async_send(std::move(taken));
        }));
      }
    } else if (kind == 3) {
      one = start(as_sender([&messages] { return messages.async_wait(); }));
    } else if (kind == 4) {
      auto into = share_bytes(bed, length);
      one = start(as_sender([&left, into, to = must(remote.slice(0, length))] {
        return left.async_read(into, {.remote = to});
      }));
    } else if (kind == 5) {
      one->stop.request_stop();
    } else if (kind == 6) {
      ends.right.poll();
    } else {
      left.poll();
    }
    for (auto& each : operations) {
      if (each == nullptr || !each->seen().is_done()) continue;
      record& seen = each->seen();
      if (seen.completions() != 1 || seen.errors != 0) ++errors;
      if (seen.memory && !holds(*seen.memory, 9)) ++errors;
      if (seen.arrived &&
          !std::ranges::equal(seen.arrived->bytes(), pattern(seen.arrived->size(), 9)))
        ++errors;
      each.reset();
    }
  }
  CHECK(errors == 0);
  for (auto& each : operations)
    if (each != nullptr) each->stop.request_stop();
  wait_until(
      [&] {
        left.poll();
        ends.right.poll();
        while (auto next = messages.poll()) static_cast<void>(must(std::move(*next)));
        return left.outstanding() == 0;
      },
      "the last requests");
  for (auto& each : operations) CHECK((each == nullptr || each->seen().is_done()));
  CHECK(holds(theirs, 9));
  CHECK(left.is_connected());
  {
    const inbox closed = std::move(messages);
  }
  must(ends.right.close());
  operations.clear();
  CHECK(pool.available() == pool.size());
}

}  // namespace verbspp::test::senders
