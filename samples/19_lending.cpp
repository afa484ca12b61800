// SPDX-License-Identifier: Apache-2.0
/// \file
/// A server lends memory to its clients, and revokes the lease of a slow client. After `revoke` has
/// succeeded, no write of that client reaches the memory; the other clients continue.
///
/// An acceptor connects the clients. Each client has its own memory window, whose key is useless to
/// the others. The clients are threads of this program, and connect by TCP.

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <latch>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr std::uint32_t clients = 4, slow_client = 2;
constexpr std::size_t place_size = 64;
constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "lending", .version = 1};
constexpr acceptor_options serving{.exchange = protocol, .limit = patience};
using lent_memory = remote_memory<access::remote_write>;

/// The access flags of the memory to lend, to which windows are bound.
constexpr access_flags to_lend = access::local_write | access::window_bind;
using places = std::array<std::array<char, place_size>, clients>;

std::string text_of(std::uint32_t number) { return "client " + std::to_string(number); }

/// The server's side of a client.
struct borrower {
  std::uint32_t number;
  channel link;
  lease<access::remote_write> lent;
  pending<> done;  ///< the receive for the message that the client sends after its write
  bool is_done = false;
};

/// Lends a place to the next client.
template <class Acceptor>
transport_result<borrower> lend(Acceptor& acceptor, const memory_region<to_lend>& region) {
  VERBSPP_TRY(client, acceptor.next(patience));
  channel& link = client.met.channel;
  const std::uint32_t number = client.met.theirs;
  VERBSPP_TRY(part, region.window_part<access::remote_write>(number * place_size, place_size));
  // The channel posts the lease before the message that announces it, so the client can't use the
  // lease too early.
  VERBSPP_TRY(lent, link.post_lease(part));
  VERBSPP_TRY(remote, lent.remote());
  VERBSPP_TRY(done, link.post_receive({}));
  const auto encoded = remote.encode();
  VERBSPP_TRYV(link.send({.elements = inline_payload(encoded)}));
  return borrower{number, std::move(link), std::move(lent), std::move(done)};
}

/// Lends memory to all clients. When all but one are done, revokes the lease of the last one.
template <class Acceptor>
transport_result<std::vector<borrower>> serve(Acceptor& acceptor,
                                              const memory_region<to_lend>& region) {
  std::vector<borrower> all;
  while (all.size() < clients) {
    VERBSPP_TRY(next, lend(acceptor, region));
    all.push_back(std::move(next));
  }
  const wait_limit limit(patience);
  const auto busy = [&] { return std::ranges::count(all, false, &borrower::is_done); };
  while (busy() > 1) {
    for (borrower& each : all) {
      if (each.is_done) continue;
      const auto message = each.done.poll();
      if (!message) continue;
      VERBSPP_TRYV(*message);
      each.is_done = true;
    }
    if (limit.has_passed())
      return error(error_kind::timed_out, "serve", "more than one client is slow");
    std::this_thread::yield();
  }
  const auto last = std::ranges::find(all, false, &borrower::is_done);
  VERBSPP_TRYV(last->lent.revoke());
  std::cout << "client " << last->number << " was too slow: the server has revoked its lease\n";
  return all;
}

/// Acts as a client: borrows a place, writes to it, and sends a message. When the server has
/// revoked a lease, writes again. The slow client skips the first write and the message.
transport_result<void> borrow(const protection_domain& domain, const std::string& port,
                              std::uint32_t number, std::latch& revoked) {
  VERBSPP_TRY(prepared, domain.build_channel().max_inline_data(place_size).build());
  VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, lent_memory::encoded_size));
  // Post the receive before the handshake, so that it is ready for the server's first message.
  VERBSPP_TRY(offer, prepared.post_receive(std::move(buffer)));
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared), number,
                                           patience, protocol));
  auto [received, message] = offer.wait(patience);
  VERBSPP_TRYV(received);
  VERBSPP_TRY(lent, lent_memory::decode(std::as_bytes(std::span(message))));

  const std::string text = text_of(number);
  const auto write = [&] {
    return met.channel.write({.elements = inline_payload(text), .remote = lent}, patience);
  };
  if (number != slow_client) {
    VERBSPP_TRYV(write());
    VERBSPP_TRYV(met.channel.send({}, patience));
  }
  revoked.wait();
  const auto written = write();
  if (number != slow_client) {
    VERBSPP_TRYV(written);
    return success();
  }
  if (written.has_value())
    return error(error_kind::driver, "write", "it succeeded although the lease was revoked");
  std::cout << "the write of the slow client failed: " << written.error() << '\n';
  return success();
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  places memory{};
  VERBSPP_TRY(region, register_memory<to_lend>(domain, memory));
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  // The acceptor calls this for each client. Returns the channel for the connection, and a value to
  // send.
  auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, domain.build_channel().max_inline_data(place_size).build());
    return exchange_offer{std::move(prepared), clients};
  };
  VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener), prepare, serving));

  std::latch revoked(1);
  std::vector<transport_result<void>> outcomes(clients, success());
  std::vector<std::jthread> threads;
  for (std::uint32_t i = 0; i < clients; ++i)
    threads.emplace_back([&, i] { outcomes[i] = borrow(domain, port, i, revoked); });
  // The channels are kept until the clients have finished.
  const auto served = serve(acceptor, region);
  revoked.count_down();
  threads.clear();

  if (!served.has_value()) return served.error();
  for (const auto& each : outcomes) VERBSPP_TRYV(each);
  for (std::uint32_t i = 0; i < clients; ++i) {
    const std::string expected = i != slow_client ? text_of(i) : "";
    if (std::string_view(memory[i].data()) != expected)
      return error(error_kind::mismatch, "lending", "a place has the wrong text");
  }
  std::cout << "the other clients continued\n";
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
