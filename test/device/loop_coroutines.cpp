// SPDX-License-Identifier: Apache-2.0
// Servers and clients that are coroutines, in the event loop of the library.

#include "../eager.hpp"
#include "../socket_pair.hpp"
#include "channels.hpp"
#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using routine = eager<transport_result<void>>;
using number_session = exchange_session<std::uint32_t, prepared_channel>;
using number_meeting = meeting_session<std::uint32_t, prepared_channel>;

std::string text_of(const message& from) {
  return {reinterpret_cast<const char*>(from.bytes().data()), from.size()};
}

/// Runs the loop until all of the coroutines have ended.
template <class... Coroutines>
void run(event_loop& loop, const Coroutines&... coroutines) {
  while (!(coroutines.is_done() && ...))
    if (!must(loop.run_once(patience)))
      throw failure(__FILE__, __LINE__, "no event arrived in time");
}

/// A server that consists of coroutines, which all run on the same loop.
class coroutine_server {
 public:
  coroutine_server(event_loop& loop, const testbed& bed)
      : loop_(loop),
        bed_(bed),
        pool_(must(message_pool::create(bed.domain, 256, 32))),
        hub_(supported(
            channel_hub::create(
                bed.domain, pool_,
                {.channels = 32, .receives = 64, .refill = 8, .waiting = wait_mode::sleep()}),
            shared_receive_queues)),
        listener_(must(tcp_listener::open("0"))),
        port_(std::to_string(listener_.port())) {
    accepting_.emplace(accept());
    polling_.emplace(poll());
  }

  [[nodiscard]] const std::string& address() const { return port_; }
  [[nodiscard]] std::size_t served() const { return served_; }
  /// The number of clients that are connected.
  [[nodiscard]] std::size_t size() {
    std::erase_if(clients_, [](const auto& each) { return each.second.serving->is_done(); });
    return clients_.size();
  }

 private:
  struct client {
    channel link{};
    std::optional<routine> serving{};
  };

  routine accept() {
    const auto prepare =
        [this]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t, inbox>> {
      VERBSPP_TRY(prepared, bed_.domain.build_channel().hub(hub_).build());
      VERBSPP_TRY(requests, inbox::open(prepared, pool_));
      return exchange_offer{std::move(prepared), std::uint32_t{1}, std::move(requests)};
    };
    VERBSPP_CO_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener_), prepare));
    for (;;) {
      VERBSPP_CO_TRY(next, co_await loop_.async_next(acceptor));
      client& added = clients_[served_++];
      added.link = std::move(next.met.channel);
      added.serving.emplace(echo(added.link, std::move(next.kept)));
    }
  }
  routine poll() {
    for (;;) {
      VERBSPP_CO_TRYV(co_await loop_.async_ready(hub_));
      VERBSPP_CO_TRYV(hub_.poll());
    }
  }
  static routine echo(channel& link, inbox requests) {
    for (;;) {
      VERBSPP_CO_TRY(request, co_await requests.async_wait(wait_limit::forever()));
      VERBSPP_CO_TRYV(co_await link.async_send(std::move(request)));
    }
  }

  event_loop& loop_;
  const testbed& bed_;
  message_pool pool_;
  channel_hub hub_;
  tcp_listener listener_;
  std::string port_;
  std::size_t served_ = 0;
  std::map<std::size_t, client> clients_{};
  std::optional<routine> accepting_{};
  std::optional<routine> polling_{};
};

/// Connects, sends messages, and checks the answers.
routine talk(event_loop& loop, const testbed& bed, const message_pool& pool,
             const std::string& port, unsigned count, std::size_t& answers) {
  VERBSPP_CO_TRY(
      prepared, bed.domain.build_channel().max_inline_data(32).waiting(wait_mode::sleep()).build());
  VERBSPP_CO_TRY(messages, inbox::open(prepared, pool, {.depth = 2}));
  VERBSPP_CO_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_CO_TRY(session, number_session::start(socket.descriptor(), std::move(prepared),
                                                std::uint32_t{2}, patience));
  VERBSPP_CO_TRY(met, co_await loop.async_run(std::move(session)));
  for (unsigned i = 0; i < count; ++i) {
    const std::string text = std::to_string(i);
    VERBSPP_CO_TRYV(met.channel.post_send({.elements = inline_payload(std::string_view(text))}));
    VERBSPP_CO_TRY(answer,
                   co_await loop.async_until(messages, [](inbox& from) { return from.poll(); }));
    if (text_of(answer) == text) ++answers;
  }
  co_return success();
}

}  // namespace

TEST_CASE("a server of coroutines and its clients share one event loop") {
  const testbed bed;
  event_loop loop;
  coroutine_server server(loop, bed);
  const message_pool pool = must(message_pool::create(bed.domain, 128, 32));
  std::size_t answers = 0;
  std::vector<routine> clients;
  for (unsigned i = 0; i < 8; ++i)
    clients.push_back(talk(loop, bed, pool, server.address(), 10 + i, answers));
  const auto all_done = [&] {
    for (const routine& each : clients)
      if (!each.is_done()) return false;
    return true;
  };
  while (!all_done())
    if (!must(loop.run_once(patience)))
      throw failure(__FILE__, __LINE__, "no event arrived in time");
  for (routine& each : clients) must(each.get());
  CHECK(answers == 8 * 10 + 28);
  CHECK(server.served() == 8);
  // The clients have disconnected, so the coroutines that serve them end.
  clients.clear();
  while (server.size() != 0)
    if (!must(loop.run_once(patience)))
      throw failure(__FILE__, __LINE__, "no event arrived in time");
}

TEST_CASE("clients of a server of coroutines can be destroyed at any moment") {
  const testbed bed;
  event_loop loop;
  coroutine_server server(loop, bed);
  const message_pool pool = must(message_pool::create(bed.domain, 128, 32));
  std::size_t answers = 0;
  for (unsigned rounds = 0; rounds < 24; ++rounds) {
    const routine client = talk(loop, bed, pool, server.address(), 1000, answers);
    for (unsigned i = 0; i < rounds; ++i) must(loop.run_once(patience));
  }
  CHECK(pool.available() == pool.size());
  routine last = talk(loop, bed, pool, server.address(), 5, answers = 0);
  run(loop, last);
  must(last.get());
  CHECK(answers == 5);
}

TEST_CASE("both sides of a meeting are coroutines of one loop") {
  const testbed bed;
  event_loop loop;
  const auto meet_from = [&](const tcp_listener& own, const tcp_listener& peer,
                             std::uint32_t number) -> eager<result<std::uint32_t>> {
    VERBSPP_CO_TRY(prepared, bed.domain.build_channel().build());
    VERBSPP_CO_TRY(session, number_meeting::start(own, "127.0.0.1", std::to_string(peer.port()),
                                                  std::move(prepared), number, patience));
    VERBSPP_CO_TRY(found, co_await loop.async_run(std::move(session)));
    co_return found.met.theirs;
  };
  const auto left = must(tcp_listener::open("0"));
  const auto right = must(tcp_listener::open("0"));
  auto one = meet_from(left, right, 1);
  auto two = meet_from(right, left, 2);
  run(loop, one, two);
  CHECK(must(one.get()) == 2);
  CHECK(must(two.get()) == 1);
}

TEST_CASE("a coroutine that is destroyed during an exchange notifies the peer") {
  const testbed bed;
  event_loop loop;
  const socket_pair sockets;
  const auto start = [&](int socket, wait_limit limit) -> eager<result<std::uint32_t>> {
    VERBSPP_CO_TRY(prepared, bed.domain.build_channel().build());
    VERBSPP_CO_TRY(session,
                   number_session::start(socket, std::move(prepared), std::uint32_t{1}, limit));
    VERBSPP_CO_TRY(met, co_await loop.async_run(std::move(session)));
    co_return met.theirs;
  };
  SECTION("an exchange whose peer is silent ends at its limit") {
    auto limited = start(sockets[0], short_limit);
    run(loop, limited);
    CHECK(failure_of(limited.get()) == error_kind::timed_out);
  }
  auto peer = start(sockets[1], patience);
  {
    const auto destroyed = start(sockets[0], patience);
  }
  run(loop, peer);
  CHECK(peer.get().has_error());
}

TEST_CASE("a wait for the next client ends at its limit or if the acceptor was stopped") {
  const testbed bed;
  event_loop loop;
  auto prepare = [&bed]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, bed.domain.build_channel().build());
    return exchange_offer{std::move(prepared), std::uint32_t{7}};
  };
  auto clients = must(accept_exchanges<std::uint32_t>(must(tcp_listener::open("0")), prepare));
  const auto next = [&](wait_limit limit) -> eager<result<void>> {
    VERBSPP_CO_TRYV(co_await loop.async_next(clients, limit));
    co_return success();
  };
  auto limited = next(short_limit);
  while (!limited.is_done()) static_cast<void>(must(loop.run_once(patience)));
  CHECK(failure_of(limited.get()) == error_kind::timed_out);
  clients.stop();
  auto stopped = next(patience);
  CHECK(failure_of(stopped.get()) == error_kind::not_connected);
}

TEST_CASE("a hub that only spins cannot be awaited") {
  const testbed bed;
  event_loop loop;
  const channel_hub hub = must(channel_hub::create(bed.domain, {.channels = 1, .completions = 16}));
  const auto wait = [&]() -> eager<result<void>> { co_return co_await loop.async_ready(hub); };
  auto waiting = wait();
  run(loop, waiting);
  CHECK(failure_of(waiting.get()) == error_kind::not_supported);
}
