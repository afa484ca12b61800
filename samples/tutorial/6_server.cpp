// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 6 of docs/guide/tutorial.md: a server of many clients, with two answering threads.
///
///     6_server --port 4711              the server; it ends when its eight clients have left
///     6_server --port 4711 localhost    eight clients; one of them disconnects early

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
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
constexpr std::uint32_t clients_to_come = 8;
constexpr exchange_options protocol{.application = "tutorial 6", .version = 1};

/// The server's data about a client. Only the thread that has the client's turn uses it.
struct account {
  std::uint32_t number;
  std::uint64_t answered = 0;
};

/// Connects the clients, and adds each one to the table.
result<void> accept(const protection_domain& domain, hub_clients<account>& clients,
                    tcp_listener listener) {
  const auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, domain.build_channel().hub(clients.hub()).build());
    return exchange_offer{std::move(prepared), clients_to_come};
  };
  VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener), prepare,
                                                        {.exchange = protocol}));
  for (std::uint32_t i = 0; i < clients_to_come; ++i) {
    VERBSPP_TRY(next, acceptor.next(patience));
    // The channel has a duplicate of the socket, and breaks when the client closes its end.
    VERBSPP_TRYV(clients.add(std::move(next.met.channel), account{next.met.theirs}));
  }
  return success();
}

/// Answers requests, until a stop is requested. Several threads may run this function.
result<void> answer(hub_clients<account>& clients, const std::stop_token& stop) {
  for (;;) {
    VERBSPP_TRY(client, clients.wait(stop));
    while (auto request = client.next())
      if (client.link().post_send(std::move(*request)).has_value()) ++client.data().answered;
    if (client.link().is_connected()) continue;
    std::cout << "client " + std::to_string(client.data().number) + " left after " +
                     std::to_string(client.data().answered) + " answers\n";
    // The turn ends when `client` is destroyed. The table then removes the client, whose channel
    // has broken.
  }
}

result<void> serve(const protection_domain& domain, std::string_view port) {
  VERBSPP_TRY(listener, tcp_listener::open(port));
  VERBSPP_TRY(pool, message_pool::create(domain, 512, 256));
  VERBSPP_TRY(hub,
              channel_hub::create(domain, pool,
                                  {.channels = 64, .waiting = wait_mode::spin_then_sleep(20us)}));
  VERBSPP_TRY(clients, hub_clients<account>::create(hub));

  std::vector<std::jthread> threads;
  threads.reserve(2);
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&](const std::stop_token& stop) {
      const auto ended = answer(clients, stop);
      if (ended.error() != error_kind::cancelled) std::cerr << ended.error() << '\n';
    });
  VERBSPP_TRYV(accept(domain, clients, std::move(listener)));
  for (const wait_limit limit = patience; clients.size() != 0;) {
    if (limit.has_passed()) return limit.failure("wait until the clients have left");
    std::this_thread::sleep_for(1ms);
  }
  std::cout << "all clients have left\n";
  return success();
}

/// Runs one client, which has its own socket, pool and channel.
transport_result<void> ask(const protection_domain& domain, std::string_view host,
                           std::string_view port, std::uint32_t number) {
  VERBSPP_TRY(socket, tcp_socket::connect(host, port, patience));
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared), number,
                                           patience, protocol));
  for (std::uint32_t i = 0; i < 100; ++i) {
    if (number == 3 && i == 50) return success();  // this client leaves early
    const std::string text = std::to_string(number) + " asks " + std::to_string(i);
    VERBSPP_TRY(request, pool.take());
    VERBSPP_TRYV(request.assign(std::as_bytes(std::span(text))));
    VERBSPP_TRYV(met.channel.post_send(std::move(request)));
    VERBSPP_TRY(answer, answers.wait(patience));
    if (!std::ranges::equal(answer.bytes(), std::as_bytes(std::span(text))))
      return error(error_kind::mismatch, "compare the answer", "it differs from the request");
  }
  return success();
}

transport_result<void> visit(const protection_domain& domain, std::string_view host,
                             std::string_view port) {
  std::vector<transport_result<void>> outcomes(clients_to_come, success());
  {
    std::vector<std::jthread> threads;
    threads.reserve(clients_to_come);
    for (std::uint32_t i = 0; i < clients_to_come; ++i)
      threads.emplace_back([&, i] { outcomes[i] = ask(domain, host, port, i); });
  }
  for (const auto& each : outcomes) VERBSPP_TRYV(each);
  std::cout << clients_to_come << " clients have finished\n";
  return success();
}

transport_result<void> run(std::string_view port, std::string_view host) {
  VERBSPP_TRY(device, open_device("soft0"));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  if (!host.empty()) return visit(domain, host, port);
  VERBSPP_TRYV(serve(domain, port));
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 2 ? argv[2] : "4711", argc > 3 ? argv[3] : "");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
