// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tables of a hub's clients: turns, the order of messages, and how clients are added and
/// removed. In a turn, one thread processes the messages of one client. The last tests take clients
/// from acceptors.
#include "channels.hpp"
#include "failing_verb.hpp"
#include "sockets.hpp"
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// The data that these tests store for each client.
struct note {
  std::uint32_t number = 0;
  std::uint32_t seen = 0;
  std::shared_ptr<int> alive{};
};
using table = hub_clients<note>;

/// A hub with a pool and a table of its clients. Skips the test if the device has no shared receive
/// queues.
struct served_hub {
  explicit served_hub(wait_mode mode = wait_mode::spin(), std::uint32_t places = 64)
      : pool(must(message_pool::create(bed.domain, places, 64))),
        hub(supported(channel_hub::create(bed.domain, pool,
                                          {.channels = 8, .receives = places / 2, .waiting = mode}),
                      shared_receive_queues)),
        clients(must(table::create(*hub))) {}

  [[nodiscard]] auto builder() const {
    return bed.domain.build_channel().max_send_work_requests(32).max_receive_work_requests(4);
  }
  /// Connects a channel that belongs to the hub to a peer that does not.
  [[nodiscard]] channel_pair connect() const {
    auto served = must(builder().hub(*hub).build());
    return connect_channels(std::move(served), must(builder().build()));
  }

  const testbed bed{};
  message_pool pool;
  std::optional<channel_hub> hub;
  table clients;
  buffer<> from{bed.domain, pattern(64, 3)};
};

void send(channel& by, const buffer<>& from, std::uint32_t number) {
  must(by.send({.elements = from.gather(0, 8), .immediate = immediate_data(number)}, patience));
}

[[nodiscard]] std::uint32_t number_of(const message& received) {
  return received.immediate().value().value();
}

/// Returns the next turn that has a message, together with that message. Skips turns without
/// messages.
[[nodiscard]] std::pair<table::turn, message> turn_with_message(table& clients) {
  for (;;) {
    table::turn taken = must(clients.wait(patience));
    if (auto first = taken.next()) return {std::move(taken), std::move(*first)};
  }
}

/// Renews both ends of a connection, and connects them to each other.
void renew(channel& served, channel& peer) {
  const endpoint again = must(served.renew());
  must(peer.renew());
  must(peer.handshake(again));
  must(served.handshake(peer.endpoint()));
}

[[nodiscard]] std::size_t count_stopped(const std::vector<ibv_qp*>& pairs) {
  return static_cast<std::size_t>(std::ranges::count_if(pairs, [](ibv_qp* pair) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    return ibv_query_qp(pair, &attributes, IBV_QP_STATE, &initial) == 0 &&
           attributes.qp_state == IBV_QPS_ERR;
  }));
}

/// Connects a client to an acceptor, and drives the acceptor until the client can be taken from it.
/// \returns the client's end
template <class Acceptor>
[[nodiscard]] channel connect_to(Acceptor& clients, const testbed& bed, const std::string& port) {
  const tcp_socket socket = must(tcp_socket::connect("127.0.0.1", port, patience));
  auto session = must(exchange_session<int, prepared_channel>::start(
      socket.descriptor(), must(bed.domain.build_channel().build()), std::uint32_t{5}, patience));
  wait_until(
      [&] {
        must(clients.poll());
        return must(session.poll()) && clients.under_way() == 0;
      },
      "the exchange");
  return must(std::move(session).finish()).channel;
}

}  // namespace

TEST_CASE("messages of a client are kept in order until the client is added to the table") {
  served_hub serving;
  channel_pair ends = serving.connect();
  for (std::uint32_t i = 0; i < 5; ++i) send(ends.right, serving.from, i);
  CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::timed_out);
  CHECK(serving.clients.size() == 0);
  const channel_id id = must(serving.clients.add(std::move(ends.left), {.number = 7}));
  CHECK(serving.clients.size() == 1);
  {
    table::turn first = must(serving.clients.wait(patience));
    CHECK(first.id() == id);
    CHECK(first.data().number == 7);
    CHECK(first.link().is_connected());
    for (std::uint32_t i = 0; i < 3; ++i) CHECK(number_of(first.next().value()) == i);
    // The next turn receives the remaining messages, and a new one.
    send(ends.right, serving.from, 5);
    CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::timed_out);
  }
  table::turn second = must(serving.clients.wait(patience));
  for (std::uint32_t i = 3; i < 6; ++i) CHECK(number_of(second.next().value()) == i);
  CHECK_FALSE(second.next());
}

TEST_CASE("a client that has sent nothing gets a first turn that wakes a sleeping thread") {
  served_hub serving(wait_mode::sleep());
  channel_pair ends = serving.connect();
  auto waiting = std::async(std::launch::async, [&] {
    table::turn first = must(serving.clients.wait(patience));
    return std::pair(first.id(), first.next().has_value());
  });
  std::thread adder = later([&] { must(serving.clients.add(std::move(ends.left))); });
  CHECK(waiting.get().second == false);
  adder.join();
}

TEST_CASE("a turn that ends with messages left wakes a sleeping thread") {
  served_hub serving(wait_mode::sleep());
  channel_pair ends = serving.connect();
  must(serving.clients.add(std::move(ends.left)));
  send(ends.right, serving.from, 1);
  auto taken = turn_with_message(serving.clients);
  CHECK(number_of(taken.second) == 1);
  send(ends.right, serving.from, 2);
  auto waiting = std::async(std::launch::async,
                            [&] { return number_of(turn_with_message(serving.clients).second); });
  std::thread ender = later([&] { const table::turn ended = std::move(taken.first); });
  CHECK(waiting.get() == 2);
  ender.join();
}

TEST_CASE("several threads serve each client's messages in order and one at a time") {
  for (const wait_mode mode : all_modes) {
    served_hub serving(mode);
    constexpr std::uint32_t clients = 4;
    constexpr std::uint32_t messages = 200;
    std::vector<channel> peers;
    for (std::uint32_t i = 0; i < clients; ++i) {
      channel_pair ends = serving.connect();
      must(serving.clients.add(std::move(ends.left), {.number = i}));
      peers.push_back(std::move(ends.right));
    }
    std::atomic<std::uint32_t> left{clients * messages};
    std::atomic<std::uint32_t> out_of_order{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        while (left != 0) {
          auto taken = serving.clients.wait(short_limit);
          if (!taken.has_value()) continue;
          table::turn& client = taken.assume_value();
          while (auto next = client.next()) {
            if (number_of(*next) != client.data().seen) ++out_of_order;
            ++client.data().seen;
            --left;
          }
        }
      });
    for (std::uint32_t i = 0; i < messages; ++i)
      for (channel& each : peers) send(each, serving.from, i);
    for (std::thread& each : threads) each.join();
    std::uint32_t seen = 0;
    must(serving.clients.for_each([&](table::turn& each) { seen += each.data().seen; }, patience));
    CHECK(seen == clients * messages);
    CHECK(out_of_order == 0);
  }
}

TEST_CASE(
    "a thread that is busy with one client does not keep a sleeping thread from another client") {
  served_hub serving(wait_mode::sleep());
  channel_pair first = serving.connect();
  channel_pair second = serving.connect();
  must(serving.clients.add(std::move(first.left)));
  must(serving.clients.add(std::move(second.left)));
  constexpr std::uint32_t rounds = 100;
  // In each round, each thread gets a message before either thread ends its turn.
  std::atomic<std::uint32_t> received{0};
  std::atomic<std::uint32_t> late{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (received < 2 * rounds && late == 0) {
        auto taken = serving.clients.wait(short_limit);
        if (!taken.has_value() || !taken.assume_value().next()) continue;
        const std::uint32_t both = (received.fetch_add(1) / 2 + 1) * 2;
        const wait_limit limit = patience;
        while (received < both && late == 0) {
          if (limit.has_passed()) ++late;
          std::this_thread::yield();
        }
      }
    });
  for (std::uint32_t i = 0; i < rounds && late == 0; ++i) {
    const auto one = must(first.right.post_send({.elements = serving.from.gather()}));
    const auto other = must(second.right.post_send({.elements = serving.from.gather()}));
    wait_until([&] { return received >= 2 * (i + 1) || late != 0; }, "both messages");
  }
  for (std::thread& each : threads) each.join();
  CHECK(late == 0);
  CHECK(received == 2 * rounds);
}

TEST_CASE("a table of clients receives messages again when places return to its hub's pool") {
  served_hub serving(wait_mode::spin(), 4);
  channel_pair ends = serving.connect();
  must(serving.clients.add(std::move(ends.left)));
  std::vector<message> kept;
  for (std::uint32_t i = 0; i < 4; ++i) {
    send(ends.right, serving.from, i);
    kept.push_back(turn_with_message(serving.clients).second);
  }
  CHECK(serving.hub->receives_posted() == 0);
  auto late = must(ends.right.post_send({.elements = serving.from.gather(0, 8)}));
  CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::timed_out);
  kept.clear();
  CHECK(turn_with_message(serving.clients).second.size() == 8);
  must(late.wait(patience));
}

TEST_CASE("a client is found by its id unless it has a turn") {
  served_hub serving;
  channel_pair ends = serving.connect();
  const channel_id coming = ends.left.id();
  CHECK(failure_of(serving.clients.find(coming, short_limit)) == error_kind::not_connected);
  const channel_id id = must(serving.clients.add(std::move(ends.left), {.number = 3}));
  CHECK(id == coming);
  {
    table::turn mine = must(serving.clients.find(id, patience));
    CHECK(mine.data().number == 3);
    CHECK(failure_of(serving.clients.find(id, short_limit)) == error_kind::timed_out);
    CHECK(failure_of(serving.clients.for_each([](table::turn&) {}, short_limit)) ==
          error_kind::timed_out);
    std::stop_source stop;
    stop.request_stop();
    CHECK(failure_of(serving.clients.find(id, wait_limit(patience, stop.get_token()))) ==
          error_kind::cancelled);
    table::turn moved = std::move(mine);
    CHECK_FALSE(mine);  // a moved-from turn is empty
    moved.remove();
    CHECK_FALSE(moved);
  }
  CHECK(failure_of(serving.clients.find(id, short_limit)) == error_kind::not_connected);
  CHECK(failure_of(serving.clients.find({.index = 99, .generation = 1}, short_limit)) ==
        error_kind::not_connected);
  CHECK(serving.clients.size() == 0);
  CHECK(serving.hub->size() == 0);
}

TEST_CASE("a client that was found with arrivals gets no other turn before its turn ends") {
  served_hub serving;
  std::array ends{serving.connect(), serving.connect()};
  std::array<channel_id, 2> ids;
  for (std::size_t i = 0; i < 2; ++i) ids[i] = must(serving.clients.add(std::move(ends[i].left)));
  // Each client gets a first turn.
  for (int i = 0; i < 2; ++i) static_cast<void>(must(serving.clients.wait(patience)));
  for (channel_pair& each : ends) send(each.right, serving.from, 1);
  auto other = turn_with_message(serving.clients);
  // The hub has now found the messages of both clients.
  const std::size_t which = other.first.id() == ids[0] ? 1 : 0;
  std::optional<table::turn> mine = must(serving.clients.find(ids[which], patience));
  send(ends[which].right, serving.from, 2);
  {
    const table::turn ended = std::move(other.first);
  }
  CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::timed_out);
  mine.reset();
  std::vector<std::uint32_t> numbers;
  while (numbers.size() < 2) {
    auto [last, first] = turn_with_message(serving.clients);
    CHECK(last.id() == ids[which]);
    numbers.push_back(number_of(first));
    while (auto next = last.next()) numbers.push_back(number_of(*next));
  }
  CHECK(numbers == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("an index is not reused before the turn with its client has ended") {
  served_hub serving;
  channel_pair ends = serving.connect();
  const channel_id id = must(serving.clients.add(std::move(ends.left)));
  table::turn mine = must(serving.clients.find(id, patience));
  mine.link() = channel();
  channel_pair others = serving.connect();
  CHECK(others.left.id().index != id.index);
  {
    const table::turn ended = std::move(mine);
  }
  CHECK(serving.clients.size() == 0);
  channel_pair more = serving.connect();
  CHECK(more.left.id().index == id.index);
  CHECK(more.left.id() != id);
}

TEST_CASE("a client whose channel has broken is removed after its turn") {
  served_hub serving;
  const auto alive = std::make_shared<int>();
  channel_pair ends = serving.connect();
  const channel_id id = must(serving.clients.add(std::move(ends.left), {.alive = alive}));
  ends.right = channel();
  {
    table::turn mine = must(serving.clients.find(id, patience));
    CHECK_FALSE(mine.link().send({.elements = serving.from.gather()}, patience).has_value());
    CHECK(mine.link().state() == channel_state::broken);
    CHECK(alive.use_count() == 2);
  }
  CHECK(alive.use_count() == 1);
  CHECK(serving.clients.size() == 0);
  CHECK(serving.hub->size() == 0);
}

TEST_CASE("a client whose channel is renewed in its turn stays in the table") {
  served_hub serving;
  channel_pair ends = serving.connect();
  const channel_id id = must(serving.clients.add(std::move(ends.left)));
  {
    table::turn mine = must(serving.clients.find(id, patience));
    renew(mine.link(), ends.right);
  }
  send(ends.right, serving.from, 9);
  CHECK(number_of(turn_with_message(serving.clients).second) == 9);
}

TEST_CASE("a turn in which the channel is renewed drops the messages that it did not return") {
  served_hub serving;
  channel_pair ends = serving.connect();
  must(serving.clients.add(std::move(ends.left)));
  send(ends.right, serving.from, 7);
  send(ends.right, serving.from, 8);
  {
    auto [mine, first] = turn_with_message(serving.clients);
    CHECK(number_of(first) == 7);
    renew(mine.link(), ends.right);
    send(ends.right, serving.from, 9);
  }
  CHECK(number_of(turn_with_message(serving.clients).second) == 9);
}

TEST_CASE("destroying a table destroys its clients except a client in a turn until the turn ends") {
  auto serving = std::make_optional<served_hub>();
  const auto alive = std::make_shared<int>();
  channel_pair first = serving->connect();
  channel_pair second = serving->connect();
  const channel_id id = must(serving->clients.add(std::move(first.left), {.alive = alive}));
  must(serving->clients.add(std::move(second.left), {.alive = alive}));
  send(first.right, serving->from, 4);
  std::optional<table::turn> mine = must(serving->clients.find(id, patience));
  {
    const table gone = std::move(serving->clients);
  }
  CHECK(alive.use_count() == 2);
  CHECK(serving->hub->size() == 1);
  serving->hub.reset();
  CHECK(mine->link().is_connected());
  mine.reset();
  CHECK(alive.use_count() == 1);
  CHECK(serving->pool.available() == serving->pool.size());
}

TEST_CASE("a table that is destroyed stops all of its clients before it destroys one") {
  served_hub serving;
  std::vector<channel> peers;
  std::vector<ibv_qp*> pairs;
  for (int i = 0; i < 4; ++i) {
    channel_pair ends = serving.connect();
    pairs.push_back(ends.left.native_handle());
    must(serving.clients.add(std::move(ends.left)));
    peers.push_back(std::move(ends.right));
  }
  // Devices need some time to return shared receives. If all clients are stopped together, this
  // delay occurs only once.
  std::size_t stopped = 0;
  before_next_destroy_qp([&] { stopped = count_stopped(pairs); });
  {
    const table closed = std::move(serving.clients);
  }
  CHECK(stopped == pairs.size());
  CHECK(serving.hub->size() == 0);
}

TEST_CASE("a table of clients refuses invalid calls") {
  served_hub serving;
  CHECK_THAT(failure_of(table::create(*serving.hub)).message(), Catch::Contains("already"));
  std::array<arrival, 1> slot;
  CHECK_THAT(failure_of(serving.hub->poll(slot)).message(), Catch::Contains("table of clients"));
  CHECK_THAT(failure_of(serving.hub->wait(slot, patience)).message(),
             Catch::Contains("table of clients"));
  channel_pair others = connect_channels(serving.bed);
  CHECK_THAT(failure_of(serving.clients.add(std::move(others.left))).message(),
             Catch::Contains("does not use this hub"));
  CHECK(failure_of(serving.clients.add(channel())) == error_kind::invalid_input);
  CHECK(failure_of(serving.clients.find(channel().id(), patience)) == error_kind::not_connected);
  const channel_hub with_channels = must(channel_hub::create(serving.bed.domain));
  auto early = must(serving.builder().hub(with_channels).build());
  CHECK(failure_of(table::create(with_channels)) == error_kind::busy);

  table moved = std::move(serving.clients);
  CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::invalid_input);
  CHECK(failure_of(serving.clients.add(channel())) == error_kind::invalid_input);
  CHECK(failure_of(serving.clients.find({}, short_limit)) == error_kind::invalid_input);
  CHECK_THAT(failure_of(serving.clients.request_notification()).message(),
             Catch::Contains("the table was moved from"));
  CHECK(serving.clients.size() == 0);
  channel_hub hub = std::move(*serving.hub);
  CHECK(failure_of(table::create(*serving.hub)) == error_kind::invalid_input);
}

TEST_CASE("a hub reports a channel whose watched socket hangs up or becomes readable") {
  for (const wait_mode mode : all_modes) {
    served_hub serving(mode);
    sockets peer;
    channel_pair ends = serving.connect();
    ends.left.watch(peer.watched(), watch_for::hang_up);
    must(serving.clients.add(std::move(ends.left)));
    static_cast<void>(must(serving.clients.wait(patience)));
    peer.speak();
    CHECK(failure_of(serving.clients.wait(short_limit)) == error_kind::timed_out);
    std::thread quits = later([&] { peer.hang_up(); });
    {
      table::turn last = must(serving.clients.wait(patience));
      CHECK(last.link().state() == channel_state::broken);
      REQUIRE(last.link().failure());
      CHECK_THAT(last.link().failure()->root().message(), Catch::Contains("watches"));
    }
    quits.join();
    CHECK(serving.clients.size() == 0);
  }
  // Without a table of clients, the hub itself reports a watched descriptor that has become
  // readable. It returns an arrival for the channel that watches the descriptor.
  const testbed bed;
  const channel_hub hub = must(channel_hub::create(bed.domain));
  sockets peer;
  sockets another;
  auto served = must(bed.domain.build_channel().hub(hub).build());
  channel_pair ends = connect_channels(std::move(served), must(bed.domain.build_channel().build()));
  ends.left.watch(another.watched());
  ends.left.watch(peer.watched());
  another.hang_up();
  std::array<arrival, 4> slots;
  CHECK(must(hub.poll(slots)).empty());
  peer.speak();
  wait_until([&] { return !must(hub.poll(slots)).empty(); }, "the arrival");
  CHECK(slots[0].source == ends.left.id());
  ends.left.poll();
  CHECK(ends.left.state() == channel_state::broken);
}

TEST_CASE("a message that arrives before its client is taken from the acceptor is not lost") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  const auto hub =
      supported(channel_hub::create(bed.domain, pool, {.receives = 8}), shared_receive_queues);
  buffer<> from(bed.domain, pattern(64, 3));
  auto listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  auto clients = must(accept_exchanges<std::uint32_t>(
      std::move(listener), [&]() noexcept -> result<exchange_offer<prepared_channel, int>> {
        VERBSPP_TRY(prepared, bed.domain.build_channel().hub(hub).build());
        return exchange_offer{std::move(prepared), 1};
      }));
  channel client = connect_to(clients, bed, port);
  send(client, from, 11);
  std::array<arrival, 4> slots;
  CHECK(failure_of(hub.wait(slots, short_limit)) == error_kind::timed_out);
  auto taken = clients.take();
  REQUIRE(taken);
  REQUIRE(must(hub.wait(slots, patience)).size() == 1);
  CHECK(slots[0].source == taken->met.channel.id());
  CHECK(number_of(slots[0].message) == 11);
}

TEST_CASE("an acceptor keeps an inbox that was opened before the handshake") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 16, 64));
  buffer<> from(bed.domain, pattern(64, 3));
  auto listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  using offer = exchange_offer<prepared_channel, int, inbox>;
  auto clients =
      must(accept_exchanges<std::uint32_t>(std::move(listener), [&]() noexcept -> result<offer> {
        VERBSPP_TRY(prepared, bed.domain.build_channel().build());
        VERBSPP_TRY(messages, inbox::open(prepared, pool, {.depth = 4}));
        return offer{std::move(prepared), 1, std::move(messages)};
      }));
  channel client = connect_to(clients, bed, port);
  send(client, from, 12);
  auto taken = clients.take();
  REQUIRE(taken);
  CHECK(number_of(must(taken->kept.wait(patience))) == 12);
  taken.reset();
  CHECK(pool.available() == pool.size());
}
