// SPDX-License-Identifier: Apache-2.0
/// \file
/// Connects a channel by host name: the two processes connect by TCP, and one call on each side
/// connects their channels. The client then reads a short text by RDMA from the server's memory.
///
///     15_exchange [--device soft0] [--port 4711]          the server
///     15_exchange [--device soft0] [--port 4711] HOST     the client

#include <verbspp/exchange.hpp>

#include <array>
#include <chrono>
#include <iostream>
#include <string_view>
#include <tuple>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

struct arguments {
  std::string_view device = "soft0";
  std::string_view port = "4711";
  std::string_view host{};  ///< empty for the server
};

/// A peer with another application name or version is refused, and both ends get an error with the
/// reason.
constexpr exchange_options protocol{.application = "greeting", .version = 1};
using name = bounded_text<32>;
using shown_memory = remote_memory<access::remote_read>;

transport_result<void> serve(const protection_domain& domain, std::string_view port) {
  std::array<char, 64> greeting{"hello, reader"};
  VERBSPP_TRY(region, register_memory<access::remote_read>(domain, greeting));
  VERBSPP_TRY(memory, region.remote());
  VERBSPP_TRY(prepared, domain.build_channel().build());

  VERBSPP_TRY(listener, tcp_listener::open(port));
  VERBSPP_TRY(socket, listener.accept(30s));
  // Sends a handle to the memory and a name, and receives a name; the client does the reverse.
  VERBSPP_TRY(met, exchange<name>(socket.descriptor(), std::move(prepared),
                                  std::tuple(memory, name("the server")), 10s, protocol));
  std::cout << "met " << met.theirs.view() << '\n';

  // The memory has to stay registered until the client has read it, which the client indicates by
  // closing its socket.
  VERBSPP_TRYV(met.channel.wait(10s, socket.descriptor()));
  return success();
}

transport_result<void> visit(const protection_domain& domain, std::string_view host,
                             std::string_view port) {
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(inbox, registered_buffer<>::allocate(domain, 64));

  VERBSPP_TRY(socket, tcp_socket::connect(host, port, 10s));
  VERBSPP_TRY(met, (exchange<std::tuple<shown_memory, name>>(
                       socket.descriptor(), std::move(prepared), name("a client"), 10s, protocol)));
  const auto& [memory, server] = met.theirs;

  VERBSPP_TRY(into, inbox.scatter());
  VERBSPP_TRYV(met.channel.read({.elements = into, .remote = memory}));
  const std::string_view text(reinterpret_cast<const char*>(inbox.data()), inbox.size());
  std::cout << server.view() << " says: " << text.substr(0, text.find('\0')) << '\n';
  return success();
}

transport_result<void> run(const arguments& given) {
  VERBSPP_TRY(context, open_device(given.device));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  return given.host.empty() ? serve(domain, given.port) : visit(domain, given.host, given.port);
}

}  // namespace

int main(int argc, char** argv) {
  arguments given;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--device" && i + 1 < argc)
      given.device = argv[++i];
    else if (argument == "--port" && i + 1 < argc)
      given.port = argv[++i];
    else
      given.host = argument;
  }
  const auto outcome = run(given);
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
