// SPDX-License-Identifier: Apache-2.0
/// \file
/// Event loops that belong to the program. The same loop can serve channels, inboxes, hubs, tables
/// of clients, exchanges, meetings and acceptors.
#include "../socket_pair.hpp"
#include "channels.hpp"
#include "event_loop.hpp"
#include "failing_device.hpp"
#include "sockets.hpp"
#include <verbspp/base/event_source.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

using number_session = exchange_session<std::uint32_t, prepared_channel>;
using number_meeting = meeting_session<std::uint32_t, prepared_channel>;
using offer = exchange_offer<prepared_channel, std::uint32_t>;
using prepare_offer = result<offer> (*)() noexcept;

static_assert(FourFunctions<channel> && FourFunctions<inbox> && FourFunctions<channel_hub>);
static_assert(FourFunctions<hub_clients<int>> && FourFunctions<number_session>);
static_assert(FourFunctions<number_meeting>);
static_assert(FourFunctions<exchange_acceptor<std::uint32_t, prepare_offer>>);
static_assert(!EventSource<tcp_listener> && !EventSource<int>);

/// True if the descriptor is readable now.
[[nodiscard]] bool is_readable(int descriptor) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// Calls `request_notification` until it returns false, which is when a loop would go to sleep.
template <class Source>
void settle(Source& source) {
  wait_until([&] { return !must(source.request_notification()); }, "the source to run out of work");
}

[[nodiscard]] channel_pair connect_sleeping(const testbed& bed) {
  return connect_channels(bed.domain.build_channel().waiting(wait_mode::sleep()));
}

/// A hub that takes its messages from a pool. Skips the test if the device has no shared receive
/// queues.
struct loop_hub {
  explicit loop_hub(std::uint32_t places = 64, std::uint32_t receives = 32,
                    wait_mode mode = wait_mode::sleep())
      : pool(must(message_pool::create(bed.domain, places, 64))),
        hub(supported(channel_hub::create(
                          bed.domain, pool,
                          {.channels = 8, .receives = receives, .refill = 4, .waiting = mode}),
                      shared_receive_queues)) {}

  /// Connects a channel that belongs to the hub to a peer that does not.
  [[nodiscard]] channel_pair connect() const {
    const auto builder =
        bed.domain.build_channel().max_send_work_requests(32).max_receive_work_requests(32);
    auto served = must(builder.hub(hub).build());
    return connect_channels(std::move(served), must(builder.waiting(wait_mode::sleep()).build()));
  }

  const testbed bed{};
  message_pool pool;
  channel_hub hub;
};

void check_is_broken(const channel& one, const char* word) {
  REQUIRE(one.failure());
  CHECK_THAT(one.failure()->root().message(), Catch::Contains(word));
}

}  // namespace

TEST_CASE("a loop is woken for each of many messages of an inbox") {
  const testbed bed;
  channel_pair ends = connect_sleeping(bed);
  const auto pool = must(message_pool::create(bed.domain, 64, 64));
  auto arrivals = must(inbox::open(ends.left, pool));
  auto answers = must(inbox::open(ends.right, pool));
  const std::uint32_t rounds = repetitions(2000);
  auto peer = std::async(std::launch::async, [&] {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      must(ends.right.send({}, patience));
      static_cast<void>(must(answers.wait(patience)));
    }
  });
  std::uint32_t count = 0;
  const int descriptor = arrivals.file_descriptor();
  CHECK(descriptor == ends.left.file_descriptor());
  serve(arrivals, [&] {
    while (auto next = arrivals.poll()) {
      static_cast<void>(must(std::move(*next)));
      ++count;
      static_cast<void>(must(ends.left.post_send({})));
    }
    return count == rounds;
  });
  peer.get();
  CHECK(arrivals.file_descriptor() == descriptor);
}

TEST_CASE("a loop is woken for each of many messages of a hub's clients") {
  loop_hub bed;
  auto clients = must(hub_clients<int>::create(bed.hub));
  constexpr std::size_t count = 3;
  std::vector<channel> peers;
  for (std::size_t i = 0; i < count; ++i) {
    channel_pair ends = bed.connect();
    must(clients.add(std::move(ends.left)));
    peers.push_back(std::move(ends.right));
  }
  const std::uint32_t rounds = repetitions(1000);
  std::vector<std::future<void>> others;
  for (channel& peer : peers)
    others.push_back(std::async(std::launch::async, [&] {
      for (std::uint32_t i = 0; i < rounds; ++i) {
        auto answer = must(peer.post_receive({}));
        must(peer.send({}, patience));
        must(answer.wait(patience));
      }
    }));
  std::size_t echoed = 0;
  serve(clients, [&] {
    for (;;) {
      auto client = must(clients.poll());
      if (!client) return echoed == count * rounds;
      while (auto request = client->next()) {
        must(client->link().post_send(std::move(*request)));
        ++echoed;
      }
    }
  });
  for (auto& each : others) each.get();
}

TEST_CASE("several threads that each have a loop share the arrivals of a hub") {
  loop_hub bed;
  constexpr std::size_t count = 2;
  std::vector<channel> served;
  std::vector<channel> peers;
  for (std::size_t i = 0; i < count; ++i) {
    channel_pair ends = bed.connect();
    served.push_back(std::move(ends.left));
    peers.push_back(std::move(ends.right));
  }
  const std::uint32_t rounds = repetitions(2000);
  std::atomic<std::uint32_t> arrived = 0;
  const bool has_blocking_thread = GENERATE(false, true);
  const auto take = [&](std::span<arrival> taken) {
    for (const arrival& each : taken)
      if (each.message) ++arrived;
  };
  // Each peer sends a message and then waits for an arrival before it sends the next one, so the
  // test fails if a wakeup is lost.
  std::vector<std::future<void>> threads;
  for (channel& peer : peers)
    threads.push_back(std::async(std::launch::async, [&] {
      for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint32_t before = arrived;
        must(peer.send({}, patience));
        wait_until([&] { return arrived != before || arrived >= count * (i + 1); }, "an arrival");
      }
    }));
  for (int i = 0; i < 2; ++i)
    threads.push_back(std::async(std::launch::async, [&] {
      serve(bed.hub, [&] {
        std::array<arrival, 1> slot;
        take(must(bed.hub.poll(slot)));
        return arrived >= count * rounds;
      });
    }));
  if (has_blocking_thread)
    threads.push_back(std::async(std::launch::async, [&] {
      while (arrived < count * rounds) {
        std::array<arrival, 1> slot;
        const auto taken = bed.hub.wait(slot, short_limit);
        if (taken.has_value()) take(taken.assume_value());
      }
    }));
  // Some loops may still be asleep when all messages have arrived. Further messages wake them.
  wait_until([&] { return arrived >= count * rounds; }, "all arrivals", 4 * patience);
  for (std::size_t each = 0; each < count; ++each) threads[each].get();
  for (std::size_t each = count; each < threads.size(); ++each) {
    while (threads[each].wait_for(0s) != std::future_status::ready) {
      must(peers[0].send({}, patience));
      static_cast<void>(threads[each].wait_for(short_limit));
    }
    threads[each].get();
  }
}

TEST_CASE("a loop is notified that the peer's channel was destroyed") {
  const testbed bed;
  const socket_pair sockets(GENERATE(socket_pair::kind::local, socket_pair::kind::tcp));
  auto other = std::async(std::launch::async, [&] {
    auto prepared = must(bed.domain.build_channel().build());
    return must(exchange(sockets[1], std::move(prepared), patience)).channel;
  });
  auto prepared = must(bed.domain.build_channel().waiting(wait_mode::sleep()).build());
  channel mine = must(exchange(sockets[0], std::move(prepared), patience)).channel;
  channel peer = other.get();
  settle(mine);
  CHECK_FALSE(is_readable(mine.file_descriptor()));
  CHECK(mine.deadline() == (wait_limit::time_point::max)());
  SECTION("the channel is destroyed while the loop sleeps") {
    std::thread ending = later([&] { peer = channel(); });
    serve(mine, [&] {
      mine.poll();
      return !mine.is_connected();
    });
    ending.join();
  }
  SECTION("the loop only polls after it was woken") {
    peer = channel();
    wait_until([&] { return is_readable(mine.file_descriptor()); }, "the descriptor");
    wait_until(
        [&] {
          mine.poll();
          return !mine.is_connected();
        },
        "the end");
  }
  SECTION("the channel sends a message and is destroyed before the loop begins") {
    auto arriving = must(mine.post_receive({}));
    must(peer.send({}, patience));
    peer = channel();
    bool has_arrived = false;
    serve(mine, [&] {
      mine.poll();
      if (!has_arrived)
        if (auto done = arriving.poll()) has_arrived = done->has_value();
      return !mine.is_connected();
    });
    CHECK(has_arrived);
  }
  check_is_broken(mine, "closed at its other end");
  CHECK(must(mine.request_notification()));
  CHECK(mine.deadline() == (wait_limit::time_point::max)());
}

TEST_CASE("a loop is notified that a watched descriptor has become readable") {
  const testbed bed;
  channel_pair ends = connect_sleeping(bed);
  settle(ends.left);
  sockets first, second;
  // The second `watch` replaces the first descriptor, so the channel stops watching it.
  ends.left.watch(first.watched());
  settle(ends.left);
  ends.left.watch(second.watched());
  settle(ends.left);
  first.speak();
  CHECK_FALSE(is_readable(ends.left.file_descriptor()));
  std::thread speaker = later([&] { second.speak(); });
  serve(ends.left, [&] {
    ends.left.poll();
    return !ends.left.is_connected();
  });
  speaker.join();
  check_is_broken(ends.left, "descriptor");
  // The channel stops watching the second descriptor, although it is still readable.
  ends.left.watch(-1);
  const endpoint anew = must(ends.left.renew());
  const endpoint other = must(ends.right.renew());
  must(ends.left.handshake(other));
  must(ends.right.handshake(anew));
  auto arriving = must(ends.left.post_receive({}));
  std::thread sender = later([&] { must(ends.right.send({}, patience)); });
  serve(ends.left, [&] {
    ends.left.poll();
    return arriving.poll().has_value();
  });
  sender.join();
}

TEST_CASE("a loop of a hub is notified that the watched socket of a client has hung up") {
  loop_hub bed;
  auto clients = must(hub_clients<int>::create(bed.hub));
  channel_pair ends = bed.connect();
  sockets peer;
  ends.left.watch(peer.watched(), watch_for::hang_up);
  must(clients.add(std::move(ends.left)));
  while (must(clients.poll())) {
  }
  settle(clients);
  CHECK_FALSE(is_readable(clients.file_descriptor()));
  std::thread ending = later([&] { peer.hang_up(); });
  serve(clients, [&] {
    static_cast<void>(must(clients.poll()));
    return clients.size() == 0;
  });
  ending.join();
}

TEST_CASE("an event loop that waits for a channel is woken by a failure that the device reports") {
  const bool is_port = GENERATE(true, false);
  const bool is_read_elsewhere = GENERATE(false, true);
  const testbed bed;
  channel_pair ends = connect_sleeping(bed);
  settle(ends.left);
  const failing_device failing(is_port ? "after:50ms=port-down" : "after:50ms=device-fatal");
  // In one variant, another thread may read the event first. The loop must be woken nevertheless.
  std::optional<std::future<void>> reader;
  if (is_read_elsewhere)
    reader = std::async(std::launch::async,
                        [&] { static_cast<void>(must(bed.context.wait_async_event(patience))); });
  serve(ends.left, [&] {
    ends.left.poll();
    return !ends.left.is_connected();
  });
  if (reader) reader->get();
  check_is_broken(ends.left, is_port ? "port" : "device");
  CHECK(ends.left.failure()->ended_by() == wait_end::async_event);
}

TEST_CASE("a failure wakes a loop even if a wait for asynchronous events has read its event") {
  loop_hub bed;
  channel_pair ends = bed.connect();
  settle(bed.hub);
  settle(ends.right);
  const failing_device failing("port-down");
  must(bed.bed.context.wait_async_event(patience));
  CHECK(is_readable(bed.hub.file_descriptor()));
  CHECK(is_readable(ends.right.file_descriptor()));
  CHECK(must(bed.hub.request_notification()));
  CHECK(must(ends.right.request_notification()));
}

TEST_CASE("a blocking wait for a hub that reads an event wakes a loop") {
  loop_hub bed;
  channel_pair ends = bed.connect();
  for (std::uint32_t i = 0; i < repetitions(5); ++i) {
    settle(bed.hub);
    CHECK_FALSE(is_readable(bed.hub.file_descriptor()));
    std::thread sender = later([&] { must(ends.right.send({}, patience)); });
    std::array<arrival, 1> slot;
    static_cast<void>(must(bed.hub.wait(slot, patience)));
    sender.join();
    // The wait has read the event that would have woken the loop. The descriptor must therefore
    // wake the loop, so that it requests another event. Otherwise, the loop would sleep through the
    // next message.
    CHECK(is_readable(bed.hub.file_descriptor()));
  }
}

TEST_CASE("arrivals without a completion wake a loop") {
  loop_hub bed;
  auto clients = must(hub_clients<int>::create(bed.hub));
  channel_pair ends = bed.connect();
  settle(clients);
  CHECK_FALSE(is_readable(clients.file_descriptor()));
  must(clients.add(std::move(ends.left)));
  CHECK(is_readable(clients.file_descriptor()));
  // When a turn ends, the loop is woken if the client has another message.
  must(ends.right.send({}, patience));
  std::optional<hub_clients<int>::turn> turn;
  serve(clients, [&] {
    auto next = must(clients.poll());
    if (next && next->next()) turn = std::move(next);
    return turn.has_value();
  });
  must(ends.right.send({}, patience));
  settle(clients);
  CHECK_FALSE(is_readable(clients.file_descriptor()));
  turn.reset();
  CHECK(is_readable(clients.file_descriptor()));
  CHECK(must(clients.poll()).has_value());
}

TEST_CASE("a loop of a hub is woken for messages that a destroyed inbox had not taken") {
  loop_hub bed;
  channel_pair ends = bed.connect();
  std::optional<inbox> messages = must(inbox::open(ends.left, bed.pool));
  must(ends.right.send({}, patience));
  std::array<arrival, 4> slots;
  // The hub reports the channel, but leaves the message for the inbox.
  serve(bed.hub, [&] { return !must(bed.hub.poll(slots)).empty(); });
  CHECK_FALSE(slots[0].message);
  settle(bed.hub);
  CHECK_FALSE(is_readable(bed.hub.file_descriptor()));
  messages.reset();
  CHECK(is_readable(bed.hub.file_descriptor()));
  REQUIRE(must(bed.hub.poll(slots)).size() == 1);
  CHECK(slots[0].message);
}

TEST_CASE("a loop of a hub is notified of a failure once") {
  loop_hub bed;
  channel_pair ends = bed.connect();
  settle(bed.hub);
  const failing_device failing("after:50ms=port-down");
  std::optional<error> told;
  serve(bed.hub, [&] {
    std::array<arrival, 4> slots;
    const auto taken = bed.hub.poll(slots);
    if (taken.has_error()) told = taken.error();
    return told.has_value();
  });
  CHECK(*told == error_kind::driver);
  CHECK_THAT(told->message(), Catch::Contains("port"));
  settle(bed.hub);
  CHECK_FALSE(is_readable(bed.hub.file_descriptor()));
  std::array<arrival, 4> slots;
  CHECK(bed.hub.poll(slots).has_value());
}

TEST_CASE("a loop continues when places return to a pool that was empty") {
  SECTION("an empty pool of a hub") {
    loop_hub bed(4, 4);
    channel_pair ends = bed.connect();
    std::vector<message> kept;
    const auto take = [&] {
      std::array<arrival, 1> slot;
      for (arrival& each : must(bed.hub.poll(slot)))
        if (each.message) kept.push_back(std::move(each.message));
    };
    for (int i = 0; i < 4; ++i) must(ends.right.send({}, patience));
    serve(bed.hub, [&] {
      take();
      return kept.size() == 4;
    });
    CHECK(bed.hub.deadline() < clock::now() + patience);
    auto sent = std::async(std::launch::async, [&] { must(ends.right.send({}, patience)); });
    std::thread giver = later([&] { kept.erase(kept.begin(), kept.begin() + 3); });
    giver.join();
    serve(bed.hub, [&] {
      take();
      return kept.size() == 2;
    });
    sent.get();
    kept.clear();
    settle(bed.hub);
    CHECK(bed.hub.deadline() == (wait_limit::time_point::max)());
  }
  SECTION("an empty pool of an inbox") {
    const testbed bed;
    channel_pair ends = connect_sleeping(bed);
    const auto pool = must(message_pool::create(bed.domain, 4, 64));
    auto arrivals = must(inbox::open(ends.left, pool, {.depth = 4, .refill = 2}));
    CHECK(arrivals.deadline() == (wait_limit::time_point::max)());
    std::vector<message> kept;
    const auto take = [&] {
      while (auto next = arrivals.poll()) kept.push_back(must(std::move(*next)));
    };
    for (int i = 0; i < 4; ++i) must(ends.right.send({}, patience));
    serve(arrivals, [&] {
      take();
      return kept.size() == 4;
    });
    CHECK(arrivals.deadline() < clock::now() + patience);
    auto sent = std::async(std::launch::async, [&] { must(ends.right.send({}, patience)); });
    std::atomic<bool> is_given_back = false;
    std::thread giver = later([&] {
      kept.clear();
      is_given_back = true;
    });
    serve(arrivals, [&] {
      if (!is_given_back) return arrivals.poll().has_value();
      take();
      return kept.size() == 1;
    });
    giver.join();
    sent.get();
  }
}

TEST_CASE("an event loop drives an exchange, an acceptor and a meeting") {
  const testbed bed;
  SECTION("acceptor and session") {
    auto listener = must(tcp_listener::open("0"));
    const std::string port = std::to_string(listener.port());
    auto prepare = [&bed]() noexcept -> result<offer> {
      VERBSPP_TRY(prepared, bed.domain.build_channel().build());
      return exchange_offer{std::move(prepared), std::uint32_t{7}};
    };
    auto clients = must(accept_exchanges<std::uint32_t>(std::move(listener), prepare));
    auto other = std::async(std::launch::async, [&] {
      const tcp_socket socket = must(tcp_socket::connect("127.0.0.1", port, patience));
      auto session =
          must(number_session::start(socket.descriptor(), must(bed.domain.build_channel().build()),
                                     std::uint32_t{8}, patience));
      serve(session, [&] { return must(session.poll()); });
      return must(std::move(session).finish()).theirs;
    });
    std::optional<std::uint32_t> number;
    serve(clients, [&] {
      must(clients.poll());
      if (clients.under_way() == 0 && must(clients.request_notification()))
        number = clients.take()->met.theirs;
      return number.has_value();
    });
    CHECK(*number == 8);
    CHECK(other.get() == 7);
  }
  SECTION("meeting") {
    const auto left = must(tcp_listener::open("0"));
    const auto right = must(tcp_listener::open("0"));
    const auto meet_from = [&bed](const tcp_listener& own, const tcp_listener& peer,
                                  std::uint32_t number) {
      auto session =
          must(number_meeting::start(own, "127.0.0.1", std::to_string(peer.port()),
                                     must(bed.domain.build_channel().build()), number, patience));
      serve(session, [&] { return must(session.poll()); });
      return must(std::move(session).finish()).met.theirs;
    };
    auto other = std::async(std::launch::async, [&] { return meet_from(right, left, 2); });
    CHECK(meet_from(left, right, 1) == 2);
    CHECK(other.get() == 1);
  }
  SECTION("a session reports its limit") {
    const socket_pair sockets;
    auto session = must(number_session::start(sockets[0], must(bed.domain.build_channel().build()),
                                              std::uint32_t{8}, short_limit));
    std::optional<error> told;
    serve(session, [&] {
      const auto step = session.poll();
      if (step.has_error()) told = step.error();
      return told.has_value();
    });
    CHECK(*told == error_kind::timed_out);
  }
}

TEST_CASE("objects that cannot wake an event loop refuse to be used in one and give the reason") {
  loop_hub spinning(8, 4, wait_mode::spin());
  CHECK(spinning.hub.file_descriptor() == -1);
  const error of_hub = failure_of(spinning.hub.request_notification());
  CHECK(of_hub == error_kind::not_supported);
  CHECK_THAT(of_hub.message(), Catch::Contains("only spins"));
  loop_hub bed(8, 4);
  channel_pair ends = bed.connect();
  CHECK(ends.left.file_descriptor() == -1);
  const error of_member = failure_of(ends.left.request_notification());
  CHECK(of_member == error_kind::not_supported);
  CHECK_THAT(of_member.message(), Catch::Contains("let the event loop wait for the hub"));

  channel none;
  CHECK(none.file_descriptor() == -1);
  CHECK(none.deadline() == (wait_limit::time_point::max)());
  channel_hub moved = std::move(bed.hub);
  CHECK(bed.hub.file_descriptor() == -1);
  CHECK(bed.hub.deadline() == (wait_limit::time_point::max)());
  CHECK(failure_of(bed.hub.request_notification()) == error_kind::invalid_input);
  // epoll does not support regular files.
  channel_pair others = connect_sleeping(bed.bed);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  others.left.watch(::fileno(file));
  CHECK(others.left.file_descriptor() == -1);
  CHECK(others.left.request_notification().has_error());
  others.left.watch(-1);
  CHECK(others.left.request_notification().has_value());
  std::fclose(file);
}

TEST_CASE("one thread may poll a hub while another one opens its descriptor") {
  for (std::uint32_t i = 0; i < repetitions(20); ++i) {
    loop_hub bed;
    channel_pair ends = bed.connect();
    std::atomic<bool> polls = false, is_over = false;
    std::thread poller([&] {
      while (!is_over) {
        must(bed.hub.poll());
        polls = true;
      }
    });
    while (!polls) std::this_thread::yield();
    CHECK(bed.hub.file_descriptor() >= 0);
    is_over = true;
    poller.join();
  }
}
