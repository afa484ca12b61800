// SPDX-License-Identifier: Apache-2.0
/// \file
/// Acceptors: many clients at the same time, silent clients, peers that are not clients, limits,
/// and stopping.

#include "../socket_pair.hpp"
#include "channels.hpp"
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// Prepares a channel for each client, and offers it together with a number, which is 1 for the
/// first client, 2 for the second, and so on.
struct numbered_channels {
  const protection_domain* domain;
  std::uint32_t* offers;

  result<exchange_offer<prepared_channel, std::uint32_t>> operator()() noexcept {
    VERBSPP_TRY(prepared, domain->build_channel().build());
    return exchange_offer{std::move(prepared), ++*offers};
  }
};

using acceptor = exchange_acceptor<std::uint32_t, numbered_channels>;
using session = exchange_session<std::uint32_t, prepared_channel>;

struct server {
  explicit server(const testbed& bed, const acceptor_options& options = {}) : domain(bed.domain) {
    auto listener = must(tcp_listener::open("0"));
    port = std::to_string(listener.port());
    clients.emplace(must(accept_exchanges<std::uint32_t>(
        std::move(listener), numbered_channels{&domain, &offers}, options)));
  }
  [[nodiscard]] tcp_socket connect() const {
    return must(tcp_socket::connect("127.0.0.1", port, patience));
  }
  [[nodiscard]] session start(const tcp_socket& socket, std::uint32_t number,
                              std::chrono::nanoseconds limit = patience) const {
    return must(
        session::start(socket.descriptor(), must(domain.build_channel().build()), number, limit));
  }

  protection_domain domain;
  std::uint32_t offers = 0;
  std::string port;
  std::optional<acceptor> clients;
};

/// Drives the acceptor until the condition holds.
template <class Acceptor, class Condition>
void serve_until(Acceptor& clients, Condition condition, const char* what) {
  wait_until(
      [&] {
        must(clients.poll());
        return condition();
      },
      what);
}

}  // namespace

TEST_CASE("an acceptor connects 240 clients that connect at the same time") {
  testbed bed;
  constexpr std::uint32_t count = 240;
  // With a sanitizer in a virtual machine, it takes a long time to create 480 queue pairs.
  constexpr auto limit = 6 * patience;
  server serving(bed, {.limit = limit});
  // One thread drives all clients, and another one drives the server.
  auto all_clients = std::async(std::launch::async, [&] {
    struct client {
      tcp_socket socket;
      std::optional<session> running;
      std::optional<exchanged_channel<std::uint32_t>> met;
    };
    std::vector<client> clients(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      clients[i].socket = serving.connect();
      clients[i].running.emplace(serving.start(clients[i].socket, i, limit));
    }
    std::uint32_t done = 0;
    wait_until(
        [&] {
          for (client& each : clients) {
            if (each.met || !must(each.running->poll())) continue;
            each.met.emplace(must(std::move(*each.running).finish()));
            ++done;
          }
          return done == count;
        },
        "all clients", limit);
    return clients;
  });
  std::vector<acceptor::accepted> met;
  std::vector<std::uint32_t> numbers;
  const auto begun = clock::now();
  for (std::uint32_t i = 0; i < count; ++i) {
    met.push_back(must(serving.clients->next(limit)));
    numbers.push_back(met.back().met.theirs);
    CHECK(met.back().met.channel.is_connected());
    CHECK(met.back().socket.is_open());
  }
  // With the option `--success`, Catch prints the time that this took.
  const std::chrono::duration<double> taken = clock::now() - begun;
  SUCCEED(count << " clients were connected within " << taken.count() << " s");
  // The time says nothing if tests run in parallel or with a sanitizer, so it is checked only on
  // request.
  if (const char* const most = std::getenv("VERBSPP_TEST_SECONDS_FOR_240"))
    CHECK(taken.count() <= std::atof(most));
  std::ranges::sort(numbers);
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(numbers[i] == i);
  CHECK(serving.clients->failed() == 0);
  CHECK(serving.clients->under_way() == 0);
  auto clients = all_clients.get();
  // Each channel that the server accepted must be connected to the client whose number came with
  // it.
  buffer<> sent(bed.domain, pattern(8, 1));
  buffer<> received(bed.domain, 8);
  for (auto& each : met) {
    auto& other = *clients[each.met.theirs].met;
    auto arriving = must(other.channel.post_receive({.elements = received.scatter()}));
    must(each.met.channel.send({.elements = sent.gather()}));
    must(std::move(arriving).wait());
  }
}

TEST_CASE("silent clients do not delay other clients") {
  testbed bed;
  server serving(bed, {.clients = 64, .handshakes = 2, .limit = patience});
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(serving.connect());
  serve_until(
      *serving.clients, [&] { return serving.clients->under_way() == 20; }, "the silent clients");
  const auto socket = serving.connect();
  auto speaking = serving.start(socket, 7);
  serve_until(*serving.clients, [&] { return must(speaking.poll()); }, "the client that speaks");
  std::optional<acceptor::accepted> taken;
  serve_until(
      *serving.clients, [&] { return (taken = serving.clients->take()).has_value(); },
      "the accepted client");
  CHECK(taken->met.theirs == 7);
  // The server has created a queue pair only for the client that sent data.
  CHECK(serving.offers == 1);
  CHECK(must(std::move(speaking).finish()).theirs == 1);
  CHECK(serving.clients->under_way() == 20);
}

TEST_CASE("silent clients that fill all places are refused in favour of a client that sends data") {
  testbed bed;
  // The time limit is so long that it does not expire for the silent clients during the test.
  server serving(bed, {.clients = 8, .handshakes = 2, .limit = 10 * patience});
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(serving.connect());
  serve_until(
      *serving.clients, [&] { return serving.clients->under_way() == 8; }, "the silent clients");
  const auto socket = serving.connect();
  auto speaking = serving.start(socket, 7);
  const auto end = clock::now() + patience;
  bool is_done = false;
  while (!is_done && clock::now() < end) {
    static_cast<void>(serving.clients->next(10ms));
    is_done = must(speaking.poll());
  }
  CHECK(is_done);
  // The server refused the oldest silent clients to make room for later ones.
  CHECK(serving.clients->failed() >= 12);
  CHECK(serving.clients->last_failure() == error_kind::busy);
}

TEST_CASE("silent clients do not displace clients that have identified themselves") {
  testbed bed;
  server serving(bed, {.clients = 4, .handshakes = 1, .limit = 10 * patience, .time_to_greet = 0s});
  std::vector<tcp_socket> sockets;
  std::vector<session> waiting;
  for (std::uint32_t i = 0; i < 3; ++i) {
    sockets.push_back(serving.connect());
    waiting.push_back(serving.start(sockets.back(), i));
    CHECK(!must(waiting.back().poll()));
  }
  serve_until(*serving.clients, [&] { return serving.clients->under_way() == 3; }, "the clients");
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(serving.connect());
  serve_until(*serving.clients, [&] { return serving.clients->failed() == 19; }, "the refusals");
  serve_until(
      *serving.clients,
      [&] { return std::ranges::all_of(waiting, [](session& each) { return must(each.poll()); }); },
      "the clients");
  CHECK(serving.clients->failed() == 19);
}

TEST_CASE("two connections to one acceptor that relay each other's messages are both refused") {
  constexpr std::string_view secret = "a secret of thirty-two bytes ...";
  const exchange_options options{.secret = std::as_bytes(std::span(secret))};
  // If true, the test clears the flag that marks the accepting end in each hello that it relays.
  const bool is_disguised = GENERATE(false, true);
  testbed bed;
  {
    const socket_pair ends;
    const auto started =
        session::start(ends[0], must(bed.domain.build_channel().build()), 1, patience, options);
    if (started.has_error() && started.error() == error_kind::not_supported)
      SKIP("built without libcrypto");
  }
  server serving(bed, {.exchange = options});
  const std::array<tcp_socket, 2> stranger{serving.connect(), serving.connect()};
  std::array<std::size_t, 2> passed{};
  const auto hand_on = [&](std::size_t from) {
    std::array<std::byte, 4096> bytes{};
    const ssize_t count =
        ::recv(stranger[from].descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) return;
    const auto size = static_cast<std::size_t>(count);
    // In the hello, the flags come after the header and the nonce.
    constexpr std::size_t flags = 8 + 32;
    if (is_disguised && passed[from] <= flags && passed[from] + size > flags)
      bytes[flags - passed[from]] &= ~std::byte{4};
    passed[from] += size;
    static_cast<void>(::send(stranger[1 - from].descriptor(), bytes.data(), size, MSG_NOSIGNAL));
  };
  std::uint64_t entered = 0;
  serve_until(
      *serving.clients,
      [&] {
        hand_on(0);
        hand_on(1);
        if (serving.clients->take()) ++entered;
        return entered + serving.clients->failed() == 2;
      },
      "both connections to end");
  CHECK(entered == 0);
  CHECK(serving.offers == 0);
  // The last failure may be a refusal that the test relayed from one connection to the other. A
  // relayed refusal has the same kind.
  CHECK(serving.clients->last_failure() ==
        (is_disguised ? error_kind::permission : error_kind::mismatch));
}

TEST_CASE("silent clients are disconnected when the timeout expires") {
  testbed bed;
  server serving(bed, {.clients = 64, .handshakes = 2, .limit = 100ms});
  std::vector<tcp_socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(serving.connect());
  // Each call of `next` also disconnects the clients whose time has run out.
  const auto deadline = clock::now() + patience;
  while (serving.clients->failed() < 20 && clock::now() < deadline)
    CHECK(failure_of(serving.clients->next(50ms)) == error_kind::timed_out);
  CHECK(serving.clients->failed() == 20);
  CHECK(serving.clients->under_way() == 0);
  CHECK(serving.offers == 0);
  CHECK(serving.clients->last_failure()->message().find("hello has not arrived") !=
        std::string::npos);
  // The clients are on the server's host.
  CHECK(serving.clients->last_failed_client() == must(silent.front().peer_address()));
}

TEST_CASE("a refused client causes no more events even if a child process holds its socket") {
  testbed bed;
  server serving(bed);
  acceptor& clients = *serving.clients;
  tcp_socket stranger = serving.connect();
  serve_until(clients, [&] { return clients.under_way() == 1; }, "the stranger");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(300);
    for (;;) ::pause();
  }
  REQUIRE(child > 0);
  const struct killed_at_end {
    pid_t process;
    ~killed_at_end() {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  } holder{child};
  REQUIRE(::send(stranger.descriptor(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL) == 14);
  serve_until(clients, [&] { return clients.failed() == 1; }, "the refusal");
  stranger.close();
  must(clients.poll());
  pollfd events{.fd = clients.file_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&events, 1, 0) == 0);
}

TEST_CASE("taking a client makes the acceptor accept the next one if all places were in use") {
  testbed bed;
  server serving(bed, {.clients = 1});
  acceptor& clients = *serving.clients;
  const auto socket = serving.connect();
  auto first = serving.start(socket, 7);
  std::optional<acceptor::accepted> taken;
  serve_until(
      clients, [&] { return must(first.poll()) && (taken = clients.take()).has_value(); },
      "the first client");
  CHECK_FALSE(clients.take());
  const tcp_socket second = serving.connect();
  pollfd events{.fd = clients.file_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&events, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
  must(clients.poll());
  CHECK(clients.under_way() == 1);
}

TEST_CASE("clients beyond the limit on simultaneous handshakes wait until others have finished") {
  testbed bed;
  server serving(bed, {.handshakes = 1});
  const auto first_socket = serving.connect();
  auto first = serving.start(first_socket, 1);
  CHECK(!must(first.poll()));
  serve_until(*serving.clients, [&] { return serving.offers == 1; }, "the first offer");
  const auto second_socket = serving.connect();
  auto third_socket = serving.connect();
  auto second = serving.start(second_socket, 2);
  {
    auto third = serving.start(third_socket, 3);
    CHECK(!must(second.poll()));
    CHECK(!must(third.poll()));
    serve_until(*serving.clients, [&] { return serving.clients->under_way() == 3; }, "all clients");
    for (int i = 0; i < 20; ++i) must(serving.clients->poll());
    CHECK(serving.offers == 1);
  }
  // A waiting client that disconnects is removed from the queue.
  third_socket.close();
  serve_until(
      *serving.clients, [&] { return serving.clients->failed() == 1; },
      "the failure of the third client");
  serve_until(
      *serving.clients,
      [&] {
        static_cast<void>(must(first.poll()));
        return must(second.poll());
      },
      "the second client");
  serve_until(
      *serving.clients, [&] { return serving.clients->under_way() == 0; }, "the last handshake");
  CHECK(serving.clients->take()->met.theirs == 1);
  CHECK(serving.clients->take()->met.theirs == 2);
  CHECK(!serving.clients->take());
}

TEST_CASE("an acceptor that stops notifies pending clients and keeps connected ones") {
  testbed bed;
  server serving(bed);
  const auto socket = serving.connect();
  auto done = serving.start(socket, 1);
  serve_until(*serving.clients, [&] { return must(done.poll()); }, "the first client");
  serve_until(*serving.clients, [&] { return serving.clients->under_way() == 0; }, "the server");
  const auto other_socket = serving.connect();
  auto other = serving.start(other_socket, 2);
  CHECK(!must(other.poll()));
  serve_until(
      *serving.clients, [&] { return serving.clients->under_way() == 1; }, "the second client");
  serving.clients->stop();
  CHECK(serving.clients->is_stopped());
  wait_until([&] { return !other.poll().has_value(); }, "the refusal");
  CHECK(failure_of(other.poll()).message().find("the acceptor was stopped") != std::string::npos);
  CHECK(must(serving.clients->next(patience)).met.theirs == 1);
  CHECK(failure_of(serving.clients->next(patience)) == error_kind::not_connected);
  CHECK(failure_of(tcp_socket::connect("127.0.0.1", serving.port, patience)) ==
        error_kind::not_connected);
}

TEST_CASE("an acceptor that stops keeps a client whose last frame has arrived") {
  testbed bed;
  server serving(bed);
  const auto socket = serving.connect();
  auto client = serving.start(socket, 1);
  CHECK(!must(client.poll()));
  serve_until(*serving.clients, [&] { return serving.offers == 1; }, "the offer");
  // Usually, the client now gets the offer and reports that it is ready before the server is ready.
  // Its exchange is then over before the server has read the last frame.
  serve_until(
      *serving.clients,
      [&] { return must(client.poll()) || (must(serving.clients->poll()), false); }, "the client");
  serving.clients->stop();
  CHECK(must(std::move(client).finish()).channel.is_connected());
  CHECK(must(serving.clients->next(patience)).met.theirs == 1);
  CHECK(serving.clients->failed() == 0);
}

TEST_CASE("an acceptor that is stopped by its own prepare function notifies the clients") {
  struct stopping {
    const protection_domain* domain;
    std::function<void()>* in_the_middle;
    result<exchange_offer<prepared_channel, std::uint32_t>> operator()() const noexcept {
      VERBSPP_TRY(prepared, domain->build_channel().build());
      (*in_the_middle)();
      return exchange_offer{std::move(prepared), std::uint32_t{1}};
    }
  };
  testbed bed;
  std::function<void()> in_the_middle;
  auto listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  auto clients = must(
      accept_exchanges<std::uint32_t>(std::move(listener), stopping{&bed.domain, &in_the_middle}));
  std::optional<error> nested;
  in_the_middle = [&] {
    clients.stop();
    nested = failure_of(clients.poll());
  };
  const auto socket = must(tcp_socket::connect("127.0.0.1", port, patience));
  auto client = must(
      session::start(socket.descriptor(), must(bed.domain.build_channel().build()), 1U, patience));
  std::optional<error> told;
  serve_until(
      clients,
      [&] {
        const auto step = client.poll();
        if (!step.has_value()) told = failure_of(step);
        return told.has_value();
      },
      "the refusal");
  CHECK(told->message().find("the acceptor was stopped") != std::string::npos);
  CHECK(clients.is_stopped());
  CHECK(clients.under_way() == 0);
  REQUIRE(nested);
  CHECK(*nested == error_kind::busy);
  CHECK(failure_of(clients.next(patience)) == error_kind::not_connected);
}

TEST_CASE("an acceptor accepts a limited number of clients per second") {
  testbed bed;
  server serving(bed, {.limit = 20s, .accepts_per_second = 20});
  std::vector<tcp_socket> sockets;
  for (int i = 0; i < 8; ++i) sockets.push_back(serving.connect());
  const auto begun = clock::now();
  // The descriptor becomes readable as soon as the acceptor may accept the next client.
  while (serving.clients->under_way() < 8) {
    must(serving.clients->poll());
    pollfd entry{.fd = serving.clients->file_descriptor(), .events = POLLIN, .revents = 0};
    if (serving.clients->under_way() < 8) REQUIRE(::poll(&entry, 1, 20000) == 1);
  }
  // The acceptor may immediately accept one client, plus as many as its rate permits in a tenth of
  // a second, which makes three here. The other five must come at intervals of 50 ms.
  CHECK(clock::now() - begun >= 250ms);
}

TEST_CASE("a client for which no channel can be prepared receives the reason") {
  testbed bed;
  auto listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  auto clients = must(accept_exchanges<std::uint32_t>(
      std::move(listener), []() noexcept -> result<exchange_offer<prepared_channel, int>> {
        return error(error_kind::resource_exhausted, "test", "no room for another client");
      }));
  auto client = std::async(std::launch::async, [&] {
    const auto socket = must(tcp_socket::connect("127.0.0.1", port, patience));
    return exchange<int>(socket.descriptor(), must(bed.domain.build_channel().build()),
                         std::uint32_t{1}, patience);
  });
  serve_until(clients, [&] { return clients.failed() == 1; }, "the failure");
  const error told = failure_of(client.get());
  CHECK(told == error_kind::resource_exhausted);
  CHECK(told.message().find("no room for another client") != std::string::npos);
}

TEST_CASE("a moved-from acceptor has no clients and returns an error") {
  testbed bed;
  server serving(bed);
  acceptor moved = std::move(*serving.clients);
  acceptor& empty = *serving.clients;
  for (const error& told : {failure_of(empty.poll()), failure_of(empty.next(patience))}) {
    CHECK(told == error_kind::invalid_input);
    CHECK(told.message().find("was moved from") != std::string::npos);
  }
  CHECK(!empty.take());
  empty.stop();
  CHECK(empty.is_stopped());
  CHECK(empty.file_descriptor() == -1);
  CHECK(empty.under_way() == 0);
  CHECK(empty.failed() == 0);
  CHECK(!empty.last_failure());
  CHECK(empty.last_failed_client().is_zero());
  CHECK(!moved.is_stopped());
}

TEST_CASE("accepting clients with invalid options is refused") {
  testbed bed;
  std::uint32_t offers = 0;
  const auto with = [&](tcp_listener listener, const acceptor_options& options) {
    return failure_of(accept_exchanges<std::uint32_t>(
        std::move(listener), numbered_channels{&bed.domain, &offers}, options));
  };
  CHECK(with(must(tcp_listener::open("0")), {.clients = 0}) == error_kind::invalid_input);
  for (const std::uint32_t above : {65537U, UINT32_MAX})
    CHECK(with(must(tcp_listener::open("0")), {.clients = above}) == error_kind::invalid_input);
  CHECK(with(must(tcp_listener::open("0")), {.handshakes = 0}) == error_kind::invalid_input);
  CHECK(with(tcp_listener(), {}) == error_kind::invalid_input);
  CHECK(with(must(tcp_listener::open("0")), {.exchange = {.application = "a\nb"}}) ==
        error_kind::invalid_input);
}
