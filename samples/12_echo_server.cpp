// SPDX-License-Identifier: Apache-2.0
/// \file
/// A complete server: an acceptor, a hub with a pool, a table of clients, and several threads. It
/// echoes messages directly from the places of the pool in which they arrived.
///
/// Some clients finish, others are killed, reconnect, are slow, or are silent. Finally the server
/// stops while some of them are still sending. The clients are threads of this program, and connect
/// by TCP.

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "echo", .version = 1};
constexpr unsigned server_threads = 3, most_clients = 64;

/// The server's data about a client. Only the thread that has the client's turn uses it.
struct account {
  std::uint32_t number;
  std::uint64_t echoed = 0;
};

class echo_server {
 public:
  static result<void> open(const protection_domain& domain, const message_pool& pool,
                           tcp_listener listener, std::optional<echo_server>& made) {
    VERBSPP_TRY(hub, channel_hub::create(
                         domain, pool,
                         {.channels = most_clients, .waiting = wait_mode::spin_then_sleep(20us)}));
    VERBSPP_TRY(clients, hub_clients<account>::create(hub));
    made.emplace(std::move(clients));
    made->start(domain, std::move(listener));
    return success();
  }
  explicit echo_server(hub_clients<account> clients) : clients_(std::move(clients)) {}

  /// Stops the threads and closes all connections, whatever the clients are doing.
  void stop() {
    for (std::jthread& each : threads_) each.request_stop();
    threads_.clear();
    const hub_clients<account> closed = std::move(clients_);
  }

  [[nodiscard]] std::uint32_t clients() const { return clients_.size(); }
  [[nodiscard]] std::uint32_t accepted() const { return accepted_; }
  [[nodiscard]] std::uint64_t echoed() const { return echoed_; }

 private:
  void start(const protection_domain& domain, tcp_listener listener) {
    threads_.emplace_back(
        [this, domain, listener = std::move(listener)](const std::stop_token& stop) mutable {
          report(accept(domain, std::move(listener), stop));
        });
    for (unsigned i = 0; i < server_threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { report(serve(stop)); });
  }

  /// Connects clients. The first messages of a client are held until `add` is called for it.
  result<void> accept(const protection_domain& domain, tcp_listener listener,
                      const std::stop_token& stop) {
    const auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
      VERBSPP_TRY(prepared, domain.build_channel().hub(clients_.hub()).build());
      return exchange_offer{std::move(prepared), most_clients};
    };
    VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener), prepare,
                                                          {.exchange = protocol}));
    for (;;) {
      VERBSPP_TRY(next, acceptor.next(wait_limit(std::chrono::hours(24), stop)));
      // The channel has a duplicate of the socket, and breaks when the client closes its end.
      VERBSPP_TRYV(clients_.add(std::move(next.met.channel), account{next.met.theirs}));
      ++accepted_;
    }
  }

  /// Serves one client after another. A client whose channel has broken is removed at the end of
  /// its turn.
  result<void> serve(const std::stop_token& stop) {
    for (;;) {
      VERBSPP_TRY(client, clients_.wait(wait_limit(std::chrono::hours(24), stop)));
      while (auto request = client.next()) {
        // A client that sends faster than it receives loses echoes, because the send queue of its
        // channel is full.
        if (!client.link().post_send(std::move(*request)).has_value()) continue;
        ++client.data().echoed;
        ++echoed_;
      }
    }
  }

  static void report(const result<void>& ended) {
    if (ended.error() != error_kind::cancelled) std::cerr << ended.error() << '\n';
  }

  hub_clients<account> clients_;
  std::atomic<std::uint32_t> accepted_{0};
  std::atomic<std::uint64_t> echoed_{0};
  std::vector<std::jthread> threads_;
};

/// The behaviour of a client.
enum class manner { finishes, is_killed, comes_back, is_slow, is_silent, stays };

/// Connects, sends requests, and checks the answers.
result<void> ask(const protection_domain& domain, const message_pool& pool, const std::string& port,
                 std::uint32_t number, manner how) {
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared), number,
                                           patience, protocol));
  channel& link = met.channel;
  if (how == manner::is_silent) {
    VERBSPP_TRYV(answers.wait(patience));
    return error(error_kind::mismatch, "echo", "an answer came without a request");
  }
  for (unsigned i = 0; i < 200 || how == manner::stays; ++i) {
    const std::string text = "message " + std::to_string(i) + " of " + std::to_string(number);
    VERBSPP_TRY(request, pool.take());
    VERBSPP_TRYV(request.assign(std::as_bytes(std::span(text))));
    VERBSPP_TRYV(link.post_send(std::move(request)));
    // Destroys the channel without waiting for the answer. The server sees a client that has died.
    if (how == manner::is_killed && i == 100) return success();
    if (how == manner::is_slow && i % 50 == 0) std::this_thread::sleep_for(20ms);
    VERBSPP_TRY(answer, answers.wait(patience));
    if (!std::ranges::equal(answer.bytes(), std::as_bytes(std::span(text))))
      return error(error_kind::mismatch, "echo", "the answer differs from the request");
  }
  return success();
}

result<void> be_client(const protection_domain& domain, const message_pool& pool,
                       const std::string& port, std::uint32_t number, manner how) {
  if (how != manner::comes_back) return ask(domain, pool, port, number, how);
  VERBSPP_TRYV(ask(domain, pool, port, number, manner::is_killed));
  return ask(domain, pool, port, number, manner::finishes);
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(pool, message_pool::create(domain, 512, 256));
  VERBSPP_TRY(clients_pool, message_pool::create(domain, 2048, 256));
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  {
    std::optional<echo_server> server;
    VERBSPP_TRYV(echo_server::open(domain, pool, std::move(listener), server));

    constexpr std::uint32_t count = 24;
    const auto manner_of = [](std::uint32_t number) { return static_cast<manner>(number % 6); };
    const auto ends_by_itself = [&](std::uint32_t number) {
      return manner_of(number) != manner::is_silent && manner_of(number) != manner::stays;
    };
    std::vector<result<void>> outcomes(count, success());
    std::vector<std::thread> clients;
    for (std::uint32_t i = 0; i < count; ++i)
      clients.emplace_back(
          [&, i] { outcomes[i] = be_client(domain, clients_pool, port, i, manner_of(i)); });
    for (std::uint32_t i = 0; i < count; ++i)
      if (ends_by_itself(i)) clients[i].join();
    // Clients that have left are removed from the table; those that stay or are silent are still in
    // it.
    constexpr std::uint32_t staying = count / 3;
    for (const wait_limit limit = patience; server->clients() != staying;) {
      if (limit.has_passed())
        return error(error_kind::timed_out, "server",
                     "a client that has left is still in the table, or one that stays is not");
      std::this_thread::sleep_for(1ms);
    }
    server->stop();
    for (std::thread& each : clients)
      if (each.joinable()) each.join();

    for (std::uint32_t i = 0; i < count; ++i)
      if (ends_by_itself(i)) VERBSPP_TRYV(outcomes[i]);
    std::cout << server->accepted() << " connections, " << server->echoed() << " echoes\n"
              << "the error of the last client: " << outcomes.back().error() << '\n';
  }
  std::cout << pool << '\n' << clients_pool << '\n';
  if (pool.available() != pool.size() || clients_pool.available() != clients_pool.size())
    return error(error_kind::mismatch, "pools", "places are missing");
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
