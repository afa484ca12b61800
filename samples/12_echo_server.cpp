// SPDX-License-Identifier: Apache-2.0
/// \file
/// A server of many clients on several threads, which echoes out of a pool. Some clients are gone
/// in the middle, and the server stops while others are still asking.
///
/// The clients are threads of this program; if they were programs, `admit` would get and give the
/// endpoints by TCP.

#include <verbspp/channel.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <mutex>
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

class echo_server {
 public:
  echo_server(const protection_domain& domain, const channel_hub& hub, unsigned threads)
      : domain_(domain), hub_(hub), table_(hub.capacity()) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
  }

  /// Connects a client. \returns this end, for the client's handshake
  result<endpoint> admit(const endpoint& client) {
    VERBSPP_TRY(prepared, domain_.build_channel().hub(hub_).build());
    const endpoint own = prepared.endpoint();
    VERBSPP_TRY(link, std::move(prepared).handshake(client));
    row& mine = table_[link.id().index];
    const std::lock_guard guard(mine.lock);
    mine.link = std::move(link);
    return own;
  }

  /// Stops the threads and ends all connections, whatever the clients are doing.
  void stop() {
    for (std::jthread& each : threads_) each.request_stop();
    threads_.clear();
    for (row& each : table_) each.link = channel();
  }

  [[nodiscard]] std::uint64_t echoed() const { return echoed_; }

 private:
  /// What there is of a client. A channel is the business of one thread at a time, and any thread
  /// may have a message of it.
  struct row {
    std::mutex lock;
    channel link;
  };

  void serve(const std::stop_token& stop) {
    std::array<arrival, 16> slots;
    while (!stop.stop_requested()) {
      const auto arrived = hub_.wait(slots, wait_limit(100ms, stop));
      if (!arrived.has_value()) {
        if (arrived.error() == error_kind::timed_out) continue;
        if (arrived.error() != error_kind::cancelled) std::cerr << arrived.error() << '\n';
        return;  // it is the stop, or the device has failed
      }
      for (arrival& each : arrived.value()) {
        row& client = table_[each.source.index];
        const std::lock_guard guard(client.lock);
        if (client.link.id() != each.source) continue;  // of a client that is gone
        // Sends that have finished give their places back.
        client.link.poll();
        // The place that was received into is sent from. If the client has more under way than its
        // queue holds, the message is dropped.
        if (each.message && client.link.post_send(std::move(each.message)).has_value()) ++echoed_;
        // An echo that nobody took tells that the client is gone. Its index is for another one now.
        if (client.link.state() == channel_state::broken) client.link = channel();
      }
    }
  }

  protection_domain domain_;
  channel_hub hub_;
  std::vector<row> table_;
  std::atomic<std::uint64_t> echoed_{0};
  std::vector<std::jthread> threads_;
};

/// How a client's life ends.
enum class end { after_its_work, in_the_middle, with_the_server };

/// Asks, and checks the answers.
result<void> ask(echo_server& server, const protection_domain& domain, const message_pool& pool,
                 unsigned number, end how) {
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(remote, server.admit(prepared.endpoint()));
  VERBSPP_TRY(link, std::move(prepared).handshake(remote));
  for (unsigned i = 0; i < 200 || how == end::with_the_server; ++i) {
    const std::string text = "message " + std::to_string(i) + " of " + std::to_string(number);
    VERBSPP_TRY(request, pool.take());
    VERBSPP_TRYV(request.assign(std::as_bytes(std::span(text))));
    VERBSPP_TRYV(link.post_send(std::move(request)));
    // Its channel goes, while the answer is on its way.
    if (how == end::in_the_middle && i == 100) return success();
    VERBSPP_TRY(answer, answers.wait(1s));
    if (!std::ranges::equal(answer.bytes(), std::as_bytes(std::span(text))))
      return error(error_kind::mismatch, "echo", "the answer is not what was sent");
  }
  return success();
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(pool, message_pool::create(domain, 512, 256));
  VERBSPP_TRY(clients_pool, message_pool::create(domain, 1024, 256));
  {
    // All of the server's channels receive from one queue, which the hub keeps filled.
    VERBSPP_TRY(hub,
                channel_hub::create(domain, pool,
                                    {.channels = 64, .waiting = wait_mode::spin_then_sleep(20us)}));
    echo_server server(domain, hub, 3);

    std::vector<result<void>> outcomes(24, success());
    std::vector<std::thread> clients;
    const auto end_of = [](unsigned number) {
      return number % 4 == 0 ? end::in_the_middle
             : number < 20   ? end::after_its_work
                             : end::with_the_server;
    };
    for (unsigned i = 0; i < outcomes.size(); ++i)
      clients.emplace_back(
          [&, i] { outcomes[i] = ask(server, domain, clients_pool, i, end_of(i)); });
    for (unsigned i = 0; i < outcomes.size(); ++i)
      if (end_of(i) != end::with_the_server) clients[i].join();
    server.stop();
    for (std::thread& each : clients)
      if (each.joinable()) each.join();

    for (unsigned i = 0; i < outcomes.size(); ++i)
      if (end_of(i) != end::with_the_server) VERBSPP_TRYV(outcomes[i]);
    std::cout << server.echoed() << " messages of " << outcomes.size() << " clients were echoed\n"
              << "the last client was told: " << outcomes.back().error() << '\n';
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
