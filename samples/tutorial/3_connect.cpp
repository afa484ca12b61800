// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 3 of docs/guide/tutorial.md: two processes.
///
///     3_connect --port 4711              the server
///     3_connect --port 4711 localhost    the client

#include <verbspp/exchange.hpp>

#include <chrono>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;
using text_buffer = registered_buffer<access::local_write, char>;

constexpr auto patience = 30s;
// Both ends have to use the same name and version.
constexpr exchange_options protocol{.application = "tutorial 3", .version = 1};

transport_result<void> serve(const protection_domain& domain, std::string_view port) {
  VERBSPP_TRY(listener, tcp_listener::open(port));
  VERBSPP_TRY(socket, listener.accept(patience));

  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(buffer, text_buffer::allocate(domain, 64));
  VERBSPP_TRY(arriving, prepared.post_receive(std::move(buffer)));
  VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), patience, protocol));

  auto [received, text] = arriving.wait(patience);
  VERBSPP_TRYV(received);
  std::cout << "the client says: " << text.data() << '\n';
  // The channel stays open until the client has closed its channel, so the acknowledgement of the
  // client's send is not lost.
  VERBSPP_TRYV(met.channel.wait(patience));
  return success();
}

transport_result<void> visit(const protection_domain& domain, std::string_view host,
                             std::string_view port) {
  VERBSPP_TRY(socket, tcp_socket::connect(host, port, patience));
  VERBSPP_TRY(prepared, domain.build_channel().max_inline_data(64).build());
  VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), patience, protocol));
  VERBSPP_TRYV(met.channel.send({.elements = inline_payload("hello from the client")}));
  return success();
}

transport_result<void> run(std::string_view port, std::string_view host) {
  VERBSPP_TRY(device, open_device("soft0"));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  return host.empty() ? serve(domain, port) : visit(domain, host, port);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 2 ? argv[2] : "4711", argc > 3 ? argv[3] : "");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
