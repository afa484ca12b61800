// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"
#include "failing_verb.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

[[nodiscard]] std::vector<std::byte> content_of(const message& what) {
  return {what.bytes().begin(), what.bytes().end()};
}

/// Takes a message from the pool, and fills it with these bytes.
[[nodiscard]] message filled(const message_pool& pool, const std::vector<std::byte>& bytes) {
  message made = must(pool.take());
  must(made.assign(bytes));
  return made;
}

/// Checks that all places in a pool are available, and that no two of them overlap.
void check_places(const message_pool& pool) {
  CHECK(pool.available() == pool.size());
  std::vector<message> all;
  std::vector<const std::byte*> where;
  for (;;) {
    auto taken = pool.take();
    if (!taken.has_value()) break;
    all.push_back(std::move(taken).assume_value());
    where.push_back(all.back().bytes().data());
  }
  CHECK(all.size() == pool.size());
  std::sort(where.begin(), where.end());
  for (std::size_t i = 1; i < where.size(); ++i)
    if (where[i] - where[i - 1] < static_cast<std::ptrdiff_t>(pool.message_size()))
      throw failure(__FILE__, __LINE__, "two places overlap");
}

/// While an object of this class exists, the device accepts only the first receives of each list.
template <class Queue>
class shortened_lists {
 public:
  shortened_lists(int (*&pointer)(Queue*, ibv_recv_wr*, ibv_recv_wr**), unsigned accepted)
      : pointer_(pointer) {
    before_ = std::exchange(pointer, post_some);
    accepted_ = accepted;
  }
  ~shortened_lists() { pointer_ = before_; }
  shortened_lists(const shortened_lists&) = delete;
  shortened_lists& operator=(const shortened_lists&) = delete;

 private:
  using post = int (*)(Queue*, ibv_recv_wr*, ibv_recv_wr**);

  static int post_some(Queue* queue, ibv_recv_wr* list, ibv_recv_wr** rejected) {
    for (unsigned left = accepted_; list != nullptr && left != 0; --left, list = list->next) {
      ibv_recv_wr one = *list;
      one.next = nullptr;
      if (const int returned = before_(queue, &one, rejected)) return returned;
    }
    *rejected = list;
    return list != nullptr ? ENOMEM : 0;
  }

  static inline post before_ = nullptr;
  static inline unsigned accepted_ = 0;
  post& pointer_;
};

}  // namespace

TEST_CASE("a pool lends its places as messages until the messages are destroyed") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 3, 100));
  CHECK(pool.size() == 3);
  CHECK(pool.message_size() == 100);
  message first = must(pool.take());
  CHECK(first.size() == 100);
  CHECK(first.capacity() == 100);
  CHECK_FALSE(first.received());
  CHECK(first.source() == channel_id());
  {
    const message second = must(pool.take());
    message third = must(pool.take());
    CHECK(pool.available() == 0);
    CHECK(failure_of(pool.take()) == error_kind::would_block);
    // The assignment returns the place of the previous message to the pool.
    first = std::move(third);
    CHECK(pool.available() == 1);
    CHECK_FALSE(third);
    CHECK(third.bytes().empty());
    CHECK(failure_of(third.gather()) == error_kind::invalid_input);
    CHECK(failure_of(third.scatter()) == error_kind::invalid_input);
    CHECK(failure_of(third.resize(1)) == error_kind::invalid_input);
  }
  CHECK(pool.available() == 2);
  must(first.assign(pattern(40, 1)));
  CHECK(content_of(first) == pattern(40, 1));
  CHECK(must(first.gather()).length() == 40);
  CHECK(must(first.scatter()).length() == 100);
  CHECK(failure_of(first.resize(101)) == error_kind::invalid_input);
  must(first.resize(50));
  CHECK(first.size() == 50);
  std::ostringstream text;
  text << pool;
  CHECK(text.str() == "message pool, 3 places of 100 bytes, 2 available");
  first = message();
  check_places(pool);
}

TEST_CASE("creating a pool of size 0 and taking from a moved-from pool are errors") {
  const testbed bed;
  for (const error& empty : {failure_of(message_pool::create(bed.domain, 0, 8)),
                             failure_of(message_pool::create(bed.domain, 8, 0))}) {
    CHECK(empty == error_kind::invalid_input);
    CHECK_THAT(empty.message(), Catch::Contains("at least one place"));
  }
  CHECK(failure_of(message_pool::create(bed.domain, UINT32_MAX, 8)) == error_kind::invalid_input);
  auto pool = must(message_pool::create(bed.domain, 1, 8));
  const auto moved = std::move(pool);
  CHECK(failure_of(pool.take()) == error_kind::invalid_input);
  CHECK(pool.size() == 0);
  CHECK(pool.available() == 0);
  CHECK_FALSE(pool == moved);
  const auto copy = moved;
  CHECK(copy == moved);
}

TEST_CASE("messages outlive their pool") {
  const testbed bed;
  const int objects = live_objects();
  message left;
  {
    const auto pool = must(message_pool::create(bed.domain, 2, 64));
    left = filled(pool, pattern(64, 2));
  }
  CHECK(content_of(left) == pattern(64, 2));
  CHECK(live_objects() == objects + 1);
  // The last message releases the memory of the pool.
  left = message();
  CHECK(live_objects() == objects);
}

TEST_CASE("the place of a message returns to the pool when the request has finished") {
  const testbed bed;
  const channel_pair ends_before = connect_channels(bed);
  channel_pair ends = connect_channels(bed);
  const auto pool = must(message_pool::create(bed.domain, 2, 128));
  buffer<> to(bed.domain, 128);
  auto receive = must(ends.right.post_receive({.elements = to.scatter()}));
  message what = filled(pool, pattern(77, 3));

  SECTION("a send whose handle is waited for") {
    auto sending = must(ends.left.post_send(std::move(what), {.immediate = immediate_data(5)}));
    CHECK_FALSE(what);
    must(sending.wait(patience));
    CHECK(pool.available() == 2);
    CHECK(must(receive.wait(patience)).immediate() == immediate_data(5));
    CHECK(to.front(77) == pattern(77, 3));
  }
  SECTION("a send whose handle is dropped") {
    CHECK(ends.left.post_send(std::move(what)).has_value());
    CHECK(must(receive.wait(patience)).byte_count() == 77);
    wait_until([&] { return ends.left.poll(), pool.available() == 2; }, "the place");
  }
  SECTION("a write in a scope") {
    buffer<> theirs(bed.domain, 128);
    must(ends.left.scope([&](channel_scope& s) -> result<void> {
      VERBSPP_TRYV(s.post_write(std::move(what), {.remote = theirs.remote()}));
      return success();
    }));
    CHECK(theirs.front(77) == pattern(77, 3));
    CHECK(pool.available() == 2);
    must(ends.right.close());
  }
  SECTION("a send after the peer has closed its channel") {
    must(ends.right.close());
    CHECK(ends.left.post_send(std::move(what)).has_value());
    CHECK(pool.available() == 1);
    must(ends.left.close());
    CHECK(pool.available() == 2);
  }
  SECTION("a message that cannot be posted keeps its place") {
    must(ends.left.close());
    CHECK(failure_of(ends.left.post_send(std::move(what))) == error_kind::not_connected);
    CHECK(content_of(what) == pattern(77, 3));
  }
  SECTION("a read returns the message to the caller") {
    buffer<> theirs(bed.domain, pattern(128, 8));
    auto reading = must(ends.left.post_read(std::move(what), {.remote = theirs.remote()}));
    auto done = reading.wait(patience);
    must(done.result);
    CHECK(content_of(done.memory) == theirs.bytes());  // the message is as long as the data
  }
  SECTION("a write with immediate data does not fill the receive's message") {
    buffer<> theirs(bed.domain, 4096);
    buffer<> much(bed.domain, 4096);
    must(ends.left.send({.elements = much.gather(0, 1)}));
    must(receive.wait(patience));
    auto receiving = must(ends.right.post_receive(must(pool.take())));
    must(ends.left.write(
        {.elements = much.gather(), .remote = theirs.remote(), .immediate = immediate_data(9)}));
    auto done = receiving.wait(patience);
    CHECK(must(done.result).byte_count() == 4096);
    CHECK(done.memory.size() == 0);
  }
  what = message();
  ends = {};
  check_places(pool);
}

TEST_CASE("an inbox returns messages in order and keeps receives posted") {
  const testbed bed;
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().max_receive_work_requests(16).build());
  const auto pool = must(message_pool::create(bed.domain, 24, 64));
  auto arrivals = must(inbox::open(right, pool, {.depth = 8, .refill = 4}));
  CHECK(arrivals.posted() == 8);
  std::ostringstream text;
  text << arrivals;
  CHECK(text.str() == "inbox, receives posted: 8 of 8, messages that have arrived: 0");
  channel_pair ends = connect_channels(std::move(left), std::move(right));
  // The lambdas capture these references because clang 14 cannot capture structured bindings.
  channel& here = ends.left;
  channel& there = ends.right;
  CHECK_FALSE(arrivals.poll());

  buffer<> from(bed.domain, pattern(64, 4));
  const std::size_t count = 100;
  std::size_t taken = 0;
  std::size_t sent = 0;
  std::vector<message> kept;
  while (taken < count) {
    if (sent < count && sent < taken + 4) {
      must(here.send({.elements = from.gather(0, 1 + sent % 60),
                      .immediate = immediate_data(static_cast<std::uint32_t>(sent))}));
      ++sent;
    }
    auto arrived = arrivals.poll();
    if (!arrived) continue;
    message what = must(std::move(*arrived));
    CHECK(what.immediate() == immediate_data(static_cast<std::uint32_t>(taken)));
    REQUIRE(what.received());
    CHECK(what.received()->is_receive());
    CHECK(content_of(what) == from.front(1 + taken % 60));
    ++taken;
    // Some messages are kept for a while, so that their places are not returned in the order in
    // which they were taken.
    if (taken % 3 == 0) kept.push_back(std::move(what));
    if (kept.size() == 10) kept.clear();
  }
  kept.clear();
  CHECK(arrivals.posted() >= 5);
  CHECK(pool.available() + arrivals.posted() == pool.size());

  SECTION("a wait without messages changes nothing") {
    CHECK(failure_of(arrivals.wait(short_limit)) == error_kind::timed_out);
    CHECK(there.is_connected());
    must(here.send({.elements = from.gather()}));
    CHECK(must(arrivals.wait(patience)).size() == 64);
  }
  SECTION("an empty pool makes the sender wait until places are returned") {
    std::vector<message> all;
    for (auto more = pool.take(); more.has_value(); more = pool.take())
      all.push_back(std::move(more).assume_value());
    const std::uint32_t posted = arrivals.posted();
    for (std::uint32_t i = 0; i < posted; ++i) {
      must(here.send({.elements = from.gather()}));
      all.push_back(must(arrivals.wait(patience)));
    }
    CHECK(failure_of(arrivals.wait(short_limit)) == error_kind::timed_out);
    auto late = must(here.post_send({.elements = from.gather(0, 9)}));
    all.clear();
    CHECK(must(arrivals.wait(patience)).size() == 9);
    must(late.wait(patience));
  }
  SECTION("a channel that breaks returns the messages that had arrived and then the cause") {
    must(here.send({.elements = from.gather(0, 3)}));
    wait_until([&] { return there.poll(), there.outstanding() < 8; }, "the message");
    must(there.close());
    CHECK(must(arrivals.wait(patience)).size() == 3);
    CHECK(failure_of(*arrivals.poll()) == error_kind::not_connected);
    CHECK(failure_of(arrivals.wait()) == error_kind::not_connected);
    CHECK(arrivals.posted() == 0);
    check_places(pool);
    SECTION("the cause is reported until the channel is renewed") {
      static_cast<void>(must(there.renew()));
      CHECK_FALSE(arrivals.poll());
      CHECK(arrivals.posted() == 8);
      static_cast<void>(must(here.renew()));
      must(here.handshake(there.endpoint()));
      must(there.handshake(here.endpoint()));
      must(here.send({.elements = from.gather(0, 5)}));
      CHECK(must(arrivals.wait(patience)).size() == 5);
    }
  }
  SECTION("an inbox can outlive its channel") {
    there = channel();
    CHECK(failure_of(*arrivals.poll()) == error_kind::not_connected);
  }
  SECTION("a channel can outlive its inbox and drops later messages") {
    {
      const auto gone = std::move(arrivals);
      CHECK(failure_of(*arrivals.poll()) == error_kind::invalid_input);
      CHECK(failure_of(arrivals.wait()) == error_kind::invalid_input);
    }
    must(here.send({.elements = from.gather(0, 5)}));
    wait_until([&] { return there.poll(), there.outstanding() < 8; }, "the message");
  }
  SECTION("messages of an inbox that was destroyed end no wait") {
    must(here.send({.elements = from.gather(0, 5)}));
    wait_until([&] { return there.poll(), there.outstanding() < 8; }, "the message");
    {
      const auto gone = std::move(arrivals);
    }
    static_cast<void>(must(there.wait(short_limit)));  // may report the completion once
    CHECK(must(there.wait(short_limit)) == wait_end::limit);
  }
  here = channel();
  there = channel();
  if (arrivals.posted() != 0) CHECK(failure_of(*arrivals.poll()) == error_kind::not_connected);
  check_places(pool);
}

TEST_CASE("the places of receives that the device rejects return to the pool") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  const unsigned accepted = GENERATE(1U, 3U);
  const buffer<> from(bed.domain, pattern(64, 1));
  auto& calls = bed.domain.context().native_handle()->ops;
  std::uint32_t sent = 0;
  const auto send = [&](channel& by) {
    must(by.send({.elements = from.gather(0, sent)}, patience));
    return sent++;
  };
  // Sends messages while the device rejects receives, and then while it accepts all of them.
  // `receive()` returns the size of the next message, and `posted()` the number of receives.
  const auto exchange_all = [&](auto& post, channel& sender, auto receive, auto posted) {
    const auto exchange = [&](unsigned count) {
      for (; count != 0; --count) {
        const std::uint32_t size = send(sender);
        CHECK(receive() == size);
      }
    };
    {
      const shortened_lists shortened(post, accepted);
      exchange(4);
      CHECK(posted() == 4 + accepted);
      CHECK(pool.available() == 16 - posted());
      exchange(10);
      CHECK(posted() >= 4);
    }
    exchange(10);
    CHECK(posted() >= 5);
    CHECK(pool.available() == 16 - posted());
  };

  SECTION("by an inbox") {
    auto left = must(bed.domain.build_channel().build());
    auto right = must(bed.domain.build_channel().max_receive_work_requests(8).build());
    inbox arrivals = must(inbox::open(right, pool, {.depth = 8, .refill = 4}));
    channel_pair ends = connect_channels(std::move(left), std::move(right));
    exchange_all(
        calls.post_recv, ends.left, [&] { return must(arrivals.wait(patience)).size(); },
        [&] { return arrivals.posted(); });
  }
  SECTION("by an inbox, and a hub uses the same places after that") {
    auto left = must(bed.domain.build_channel().build());
    auto right = must(bed.domain.build_channel().max_receive_work_requests(8).build());
    inbox arrivals = must(inbox::open(right, pool, {.depth = 8, .refill = 4}));
    channel_pair ends = connect_channels(std::move(left), std::move(right));
    {
      const shortened_lists<ibv_qp> shortened(calls.post_recv, accepted);
      for (int i = 0; i < 4; ++i) {
        send(ends.left);
        static_cast<void>(must(arrivals.wait(patience)));
      }
    }
    const std::uint32_t count = pool.available();
    CHECK(count == 16 - 4 - accepted);
    const auto hub = supported(
        channel_hub::create(bed.domain, pool, {.channels = 1, .receives = count, .refill = 1}),
        shared_receive_queues);
    CHECK(pool.available() == 0);
    auto served = must(bed.domain.build_channel().hub(hub).build());
    channel_pair others =
        connect_channels(std::move(served), must(bed.domain.build_channel().build()));
    std::array<arrival, 1> slot;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t size = send(others.right);
      CHECK(must(hub.wait(slot, patience)).size() == 1);
      CHECK(slot[0].source == others.left.id());
      CHECK(slot[0].message.size() == size);
    }
  }
  SECTION("by a hub") {
    const auto hub = supported(
        channel_hub::create(bed.domain, pool, {.channels = 1, .receives = 8, .refill = 4}),
        shared_receive_queues);
    auto served = must(bed.domain.build_channel().hub(hub).build());
    channel_pair ends =
        connect_channels(std::move(served), must(bed.domain.build_channel().build()));
    const auto receive = [&] {
      std::array<arrival, 1> slot;
      CHECK(must(hub.wait(slot, patience)).size() == 1);
      return slot[0].message.size();
    };
    exchange_all(calls.post_srq_recv, ends.right, receive, [&] { return hub.receives_posted(); });
  }
  check_places(pool);
}

TEST_CASE("several inboxes and a handle share a receive queue") {
  const testbed bed;
  const auto first_pool = must(message_pool::create(bed.domain, 8, 64));
  const auto second_pool = must(message_pool::create(bed.domain, 8, 64));
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().max_receive_work_requests(16).build());
  inbox first = must(inbox::open(right, first_pool, {.depth = 2}));
  std::optional<inbox> second = must(inbox::open(right, second_pool, {.depth = 2}));
  buffer<> into(bed.domain, 64);
  auto receive = must(right.post_receive({.elements = into.scatter()}));
  channel_pair ends = connect_channels(std::move(left), std::move(right));
  buffer<> from(bed.domain, 64);
  const auto send = [&](std::size_t size) {
    must(ends.left.send({.elements = from.gather(0, size)}));
  };
  const auto arrives = [](inbox& at, std::size_t size) {
    CHECK(must(at.wait(patience)).size() == size);
  };
  for (std::size_t size = 1; size <= 5; ++size) send(size);
  arrives(*second, 3);
  arrives(first, 1);
  arrives(*second, 4);
  arrives(first, 2);
  CHECK(must(receive.wait(patience)).byte_count() == 5U);

  // The receives of a destroyed inbox stay posted. The queue now has receives of `second`, `first`,
  // `second` and `first`, in this order.
  second.reset();
  CHECK(second_pool.available() == 6);
  SECTION("and drop what they receive") {
    for (std::size_t size = 6; size <= 9; ++size) send(size);
    arrives(first, 7);
    arrives(first, 9);
    CHECK(second_pool.available() == 8);
  }
  SECTION("until the channel is renewed") {
    must(ends.right.renew());
    CHECK(second_pool.available() == 8);
    CHECK_FALSE(first.poll());
    must(ends.left.renew());
    must(ends.left.handshake(ends.right.endpoint()));
    must(ends.right.handshake(ends.left.endpoint()));
    send(6);
    arrives(first, 6);
  }
  SECTION("until the channel is destroyed") { ends.right = channel(); }
  ends.right = channel();
  check_places(first_pool);
  check_places(second_pool);
}

TEST_CASE_METHOD(
    two_channels,
    "a message has the length of the received data regardless of its previous length") {
  const auto pool = must(message_pool::create(bed.domain, 1, 64));
  buffer<> theirs(bed.domain, pattern(64, 1));
  auto mine = must(pool.take());
  must(mine.resize(5));
  const auto is_filled = [&](const message& filled, std::size_t size) {
    CHECK(filled.size() == size);
    CHECK(filled.received().has_value());
    CHECK(filled.bytes().back() == theirs.bytes()[size - 1]);
  };

  SECTION("a message that is received by a handle") {
    auto receive = must(ends.left.post_receive(std::move(mine)));
    must(ends.right.send({.elements = theirs.gather(0, 40)}));
    auto done = receive.wait(patience);
    must(done.result);
    is_filled(done.memory, 40);
  }
  SECTION("a message that is received by a blocking call") {
    auto send = must(ends.right.post_send({.elements = theirs.gather(0, 40)}));
    must(ends.left.receive(mine));
    is_filled(mine, 40);
    must(send.wait(patience));
  }
  SECTION("a message that is filled by a read") {
    must(ends.left.read(mine, {.remote = theirs.remote()}));
    is_filled(mine, 64);
  }
  SECTION("a message that is not filled") {
    auto receive = must(ends.left.post_receive(std::move(mine)));
    auto done = receive.wait(short_limit);
    CHECK(error(failure_of(done.result)) == error_kind::timed_out);
    CHECK(done.memory.size() == 5);
    CHECK_FALSE(done.memory.received());
  }
}

TEST_CASE("repeatedly renewing a channel with an inbox keeps no earlier connection alive") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  channel_pair ends = connect_channels(bed);
  inbox messages = must(inbox::open(ends.left, pool, {.depth = 4}));
  const detail::channel_core& core = ends.left.core();
  buffer<> from(bed.domain, 64);
  for (int i = 0; i < 8; ++i) {
    must(ends.left.renew());
    static_cast<void>(messages.poll());
    CHECK(core.sends().kept_connections() == 1);
  }
  // The handle to a send that has not finished keeps the send's connection alive.
  must(ends.right.renew());
  must(ends.left.handshake(ends.right.endpoint()));
  const auto kept = must(ends.left.post_send({.elements = from.gather()}));
  must(ends.left.renew());
  CHECK(core.sends().kept_connections() == 2);
  // The next call to `poll` posts the receives on the new connection.
  CHECK(messages.posted() == 0);
  CHECK_FALSE(messages.poll());
  CHECK(messages.posted() == 4);
}

TEST_CASE("an inbox with unsuitable arguments is refused with a message") {
  const testbed bed;
  const auto other = must(protection_domain::allocate(bed.context));
  channel_pair ends = connect_channels(bed);
  const auto pool = must(message_pool::create(bed.domain, 4, 64));
  const auto foreign = must(message_pool::create(other, 4, 64));
  channel none;
  CHECK(failure_of(inbox::open(none, pool)) == error_kind::not_connected);
  CHECK(failure_of(inbox::open(ends.left, foreign)) == error_kind::invalid_input);
  CHECK(failure_of(inbox::open(ends.left, pool, {.depth = 1U << 20})) == error_kind::invalid_input);
  auto moved = must(message_pool::create(bed.domain, 4, 64));
  const message_pool taken = std::move(moved);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK(failure_of(inbox::open(ends.left, moved)) == error_kind::invalid_input);
  must(ends.left.close());
  CHECK(failure_of(inbox::open(ends.left, pool)) == error_kind::not_connected);
  check_places(pool);
}

TEST_CASE("a write with immediate data arrives in an inbox as a message without bytes") {
  const testbed bed;
  auto left = must(bed.domain.build_channel().build());
  auto right = must(bed.domain.build_channel().build());
  const auto pool = must(message_pool::create(bed.domain, 8, 64));
  auto arrivals = must(inbox::open(right, pool, {.depth = 4}));
  channel_pair ends = connect_channels(std::move(left), std::move(right));
  buffer<> from(bed.domain, pattern(4096, 4));
  buffer<> theirs(bed.domain, 4096);
  must(ends.left.write(
      {.elements = from.gather(), .remote = theirs.remote(), .immediate = immediate_data(6)}));
  const message got = must(arrivals.wait(patience));
  CHECK(got.size() == 0);
  CHECK(got.bytes().empty());
  CHECK(got.immediate() == immediate_data(6));
  REQUIRE(got.received());
  CHECK(got.received()->byte_count() == 4096);
}

TEST_CASE("threads can take messages from one pool and return them without losing a place") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 32, 8));
  constexpr unsigned threads = 4;
  std::array<std::uint64_t, threads> clashes{};
  std::vector<std::thread> workers;
  for (unsigned which = 0; which < threads; ++which)
    workers.emplace_back([&pool, &clashes, which] {
      std::minstd_rand random(which + 1);
      std::vector<message> mine;
      for (int i = 0; i < 20000; ++i) {
        if (mine.empty() || random() % 2 == 0) {
          auto taken = pool.take();
          if (!taken.has_value()) continue;
          mine.push_back(std::move(taken).assume_value());
          std::memset(mine.back().bytes().data(), static_cast<int>(which), 8);
        } else {
          const std::size_t at = random() % mine.size();
          for (const std::byte each : mine[at].bytes())
            if (each != static_cast<std::byte>(which)) ++clashes[which];
          std::swap(mine[at], mine.back());
          mine.pop_back();
        }
      }
    });
  for (std::thread& each : workers) each.join();
  for (const std::uint64_t each : clashes) CHECK(each == 0);
  check_places(pool);
}

TEST_CASE("all places return to the pool in whatever order channels are destroyed") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 64, 256));
  std::mt19937 engine(7);
  const auto random = [&engine] { return static_cast<unsigned>(engine()); };
  for (std::uint32_t round = 0; round < repetitions(1000); ++round) {
    auto left = must(bed.domain.build_channel().max_send_work_requests(8).build());
    auto right = must(bed.domain.build_channel().max_receive_work_requests(8).build());
    std::optional<inbox> arrivals = must(inbox::open(right, pool, {.refill = 1 + random() % 8}));
    auto [here, there] = connect_channels(std::move(left), std::move(right));
    std::vector<message> kept;
    std::vector<kept_pending> handles;
    const unsigned steps = random() % 40;
    for (unsigned step = 0; step < steps; ++step) switch (random() % 4) {
        case 0:
        case 1:
          if (auto taken = pool.take(); taken.has_value()) {
            message what = std::move(taken).assume_value();
            must(what.resize(random() % 256));
            auto posted = here.post_send(std::move(what));
            if (posted.has_value() && random() % 2 == 0)
              handles.push_back(std::move(posted).assume_value());
          }
          break;
        case 2:
          if (auto arrived = arrivals->poll(); arrived && arrived->has_value())
            kept.push_back(std::move(*arrived).assume_value());
          break;
        default:
          if (!kept.empty()) {
            auto posted = here.post_send(std::move(kept.back()));
            kept.pop_back();
          }
      }
    // Destroys or breaks some of the objects, in random order, while requests may be in flight.
    for (unsigned what : {random() % 6, random() % 6, random() % 6}) switch (what) {
        case 0:
          here = channel();
          break;
        case 1:
          there = channel();
          break;
        case 2:
          arrivals.reset();
          break;
        case 3:
          if (there.native_handle() != nullptr) move_to_error(there.native_handle());
          break;
        case 4:
          if (here.native_handle() != nullptr) move_to_error(here.native_handle());
          break;
        default:
          kept.clear();
      }
    here = channel();
    there = channel();
    arrivals.reset();
    kept.clear();
    handles.clear();
    if (pool.available() != pool.size()) FAIL("a place was lost in round " << round);
  }
  check_places(pool);
}
