// SPDX-License-Identifier: Apache-2.0
/// \file
/// An echo over RDMA in coroutines of Asio, with a timer: the server and the client are two
/// channels in the loop of one thread. The last request gets no answer, so the wait for it ends at
/// its limit.

#include <verbspp/asio.hpp>
#include <verbspp/channel.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace {

using namespace verbspp;
using namespace asio::experimental::awaitable_operators;
using namespace std::chrono_literals;
using asio::awaitable;
using asio::use_awaitable;

constexpr unsigned count = 100;

/// Echoes messages directly from the places of the pool in which they arrived.
awaitable<transport_result<void>> echo(asio_channel& link, inbox& requests) {
  for (unsigned i = 0; i < count; ++i) {
    VERBSPP_CO_TRY(request, co_await link.async_wait(requests, use_awaitable));
    VERBSPP_CO_TRYV(co_await link.async_send(std::move(request), use_awaitable));
  }
  co_return success();
}

/// Sends a request, and waits for the answer for a limited time.
awaitable<transport_result<void>> ask(asio_channel& link, inbox& answers, message request,
                                      std::chrono::milliseconds patience) {
  VERBSPP_CO_TRYV(co_await link.async_send(std::move(request), use_awaitable));
  asio::steady_timer timer(link.get_executor(), patience);
  auto first =
      co_await (link.async_wait(answers, use_awaitable) || timer.async_wait(use_awaitable));
  if (first.index() == 1) co_return error(error_kind::timed_out, "ask", "no answer");
  VERBSPP_CO_TRYV(std::get<0>(first));
  co_return success();
}

awaitable<transport_result<void>> ask_often(asio_channel& link, inbox& answers,
                                            const message_pool& pool) {
  for (unsigned i = 0; i <= count; ++i) {
    VERBSPP_CO_TRY(request, pool.take());
    VERBSPP_CO_TRYV(request.assign(std::as_bytes(std::span(&i, 1))));
    const auto answered =
        co_await ask(link, answers, std::move(request), i < count ? 10'000ms : 10ms);
    if (i < count) VERBSPP_CO_TRYV(answered);
    if (i == count && answered.has_value())
      co_return error(error_kind::mismatch, "ask", "the server has answered too often");
  }
  // The timer has only cancelled the wait for a message, so the channel is still connected.
  if (!link.link().is_connected()) co_return link.link().failure()->root();
  std::cout << count << " answers, and one timeout\n";
  co_return success();
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 64));
  const auto builder = domain.build_channel().waiting(wait_mode::sleep());
  VERBSPP_TRY(first, builder.build());
  VERBSPP_TRY(second, builder.build());
  VERBSPP_TRY(requests, inbox::open(first, pool));
  VERBSPP_TRY(answers, inbox::open(second, pool));
  const auto first_end = first.endpoint(), second_end = second.endpoint();
  VERBSPP_TRY(server, std::move(first).handshake(second_end));
  VERBSPP_TRY(client, std::move(second).handshake(first_end));

  asio::io_context loop(1);
  asio_channel server_link(loop, std::move(server));
  asio_channel client_link(loop, std::move(client));
  transport_result<void> served = success(), asked = success();
  const auto run_server = [&]() -> awaitable<void> {
    served = co_await echo(server_link, requests);
  };
  const auto run_client = [&]() -> awaitable<void> {
    asked = co_await ask_often(client_link, answers, pool);
  };
  asio::co_spawn(loop, run_server, asio::detached);
  asio::co_spawn(loop, run_client, asio::detached);
  loop.run();  // returns when no operation is left
  VERBSPP_TRYV(served);
  return asked.has_value() ? result<void>(success()) : error(asked.error());
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
