// SPDX-License-Identifier: Apache-2.0
/// \file
/// An echo server with one coroutine for each client. A single thread runs all coroutines. The
/// server stops gracefully, while clients are still connected. The clients are threads of this
/// program.

#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <list>
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
constexpr exchange_options protocol{.application = "coroutines", .version = 1};

/// A coroutine that starts immediately. A coroutine type of another library can be used as well.
class routine {
 public:
  struct promise_type {
    routine get_return_object() { return routine(handle::from_promise(*this)); }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(const transport_result<void>& returned) { result = returned; }
    [[noreturn]] static void unhandled_exception() { std::terminate(); }
    std::optional<transport_result<void>> result{};
  };

  routine(routine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  routine& operator=(routine&&) = delete;
  ~routine() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] const std::optional<transport_result<void>>& result() const {
    return handle_.promise().result;
  }

 private:
  using handle = std::coroutine_handle<promise_type>;
  explicit routine(handle started) : handle_(started) {}
  handle handle_;
};

/// Echoes the messages of one client, directly from the places of the pool in which they arrived. A
/// stop request ends the wait for the next message, but not an answer that is in flight.
routine echo(channel& link, inbox requests, std::stop_token stop, std::uint64_t& echoed) {
  for (;;) {
    VERBSPP_CO_TRY(request, co_await requests.async_wait(stop));
    VERBSPP_CO_TRYV(co_await link.async_send(std::move(request)));
    ++echoed;
  }
}

struct client {
  client(channel accepted, inbox requests, const std::stop_token& stop, std::uint64_t& echoed)
      : link(std::move(accepted)), serving(echo(link, std::move(requests), stop, echoed)) {}

  channel link;
  routine serving;  // declared last, so destroyed first, because it uses the channel
};

transport_result<void> serve(const protection_domain& domain, tcp_listener listener,
                             const std::stop_token& stop) {
  VERBSPP_TRY(pool, message_pool::create(domain, 1024, 256));
  VERBSPP_TRY(hub, channel_hub::create(domain, pool, {.waiting = wait_mode::sleep()}));
  const auto prepare =
      [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t, inbox>> {
    VERBSPP_TRY(prepared, domain.build_channel().hub(hub).build());
    VERBSPP_TRY(requests, inbox::open(prepared, pool));
    return exchange_offer{std::move(prepared), std::uint32_t{0}, std::move(requests)};
  };
  VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener), prepare,
                                                        {.exchange = protocol}));
  event_loop loop;
  std::list<client> clients;
  std::uint64_t accepted = 0, echoed = 0;
  const auto accept = [&]() -> routine {
    for (;; ++accepted) {
      VERBSPP_CO_TRY(next, co_await loop.async_next(acceptor, stop));
      clients.emplace_back(std::move(next.met.channel), std::move(next.kept), stop, echoed);
    }
  };
  const auto poll = [&]() -> routine {
    for (;;) {
      VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
      VERBSPP_CO_TRYV(hub.poll());  // resumes the coroutines of clients
    }
  };
  const routine accepting = accept(), polling = poll();
  std::size_t stopped = 0;
  while (!accepting.result() || !clients.empty()) {
    VERBSPP_TRYV(loop.run_once(1s));
    if (polling.result()) VERBSPP_TRYV(*polling.result());  // the hub has failed
    const std::size_t ended =
        std::erase_if(clients, [](const client& each) { return each.serving.result(); });
    if (stop.stop_requested()) stopped += ended;
  }
  std::cout << accepted << " clients, " << echoed << " echoes, " << stopped
            << " were connected when the server stopped\n";
  return success();
}

/// Sends requests, and checks the answers.
result<channel> ask(const protection_domain& domain, const message_pool& pool,
                    const std::string& port, std::uint32_t number) {
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared), number,
                                           patience, protocol));
  for (unsigned i = 0; i < 100; ++i) {
    const std::string text = "message " + std::to_string(i) + " of " + std::to_string(number);
    VERBSPP_TRY(request, pool.take());
    VERBSPP_TRYV(request.assign(std::as_bytes(std::span(text))));
    VERBSPP_TRYV(met.channel.post_send(std::move(request)));
    VERBSPP_TRY(answer, answers.wait(patience));
    if (!std::ranges::equal(answer.bytes(), std::as_bytes(std::span(text))))
      return error(error_kind::mismatch, "echo", "the answer differs from the request");
  }
  return std::move(met.channel);
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(pool, message_pool::create(domain, 2048, 256));
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  transport_result<void> served = success();
  std::jthread server([&, listener = std::move(listener)](const std::stop_token& stop) mutable {
    served = serve(domain, std::move(listener), stop);
  });
  constexpr std::uint32_t count = 8;
  std::vector<result<void>> outcomes(count, success());
  std::vector<channel> staying(count);
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      auto link = ask(domain, pool, port, i);
      if (link.has_error())
        outcomes[i] = link.error();
      else if (i % 2 == 0)
        staying[i] = std::move(link).value();  // the other clients disconnect here
    });
  for (std::thread& each : threads) each.join();
  server.request_stop();
  server.join();
  for (const result<void>& each : outcomes) VERBSPP_TRYV(each);
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
