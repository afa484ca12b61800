// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 4 of docs/guide/tutorial.md: a client reads a row of the server's table by RDMA.
///
///     4_read --port 4711              the server
///     4_read --port 4711 localhost    the client

#include <verbspp/exchange.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <utility>

/// A row of the table, with the same layout at both ends.
struct measurement {
  std::uint64_t second;
  double temperature;
};
// The exchange compares this name, and refuses a peer with another one. Change the name when the
// structure changes.
template <>
inline constexpr std::string_view verbspp::exchanged_name<measurement> = "measurement 1";

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "tutorial 4", .version = 1};
constexpr access_flags shown = access::local_write | access::remote_read;
using remote_table = remote_array<measurement, access::remote_read>;

transport_result<void> serve(const protection_domain& domain, std::string_view port) {
  VERBSPP_TRY(table, (registered_buffer<shown, measurement>::allocate(domain, 100)));
  for (std::uint64_t i = 0; i < table.size(); ++i)
    table[i] = {.second = i, .temperature = 20 + 0.25 * static_cast<double>(i)};
  VERBSPP_TRY(memory, table.remote());
  VERBSPP_TRY(rows, remote_table::of(memory));

  VERBSPP_TRY(listener, tcp_listener::open(port));
  VERBSPP_TRY(socket, listener.accept(patience));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), rows, patience, protocol));
  // The client reads a row. This process does not notice that; it waits until the client has closed
  // its channel.
  VERBSPP_TRYV(met.channel.wait(patience));
  return success();
}

transport_result<void> visit(const protection_domain& domain, std::string_view host,
                             std::string_view port) {
  VERBSPP_TRY(socket, tcp_socket::connect(host, port, patience));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(met,
              exchange<remote_table>(socket.descriptor(), std::move(prepared), patience, protocol));

  VERBSPP_TRY(row, met.theirs.element(42));
  VERBSPP_TRY(copy, (registered_buffer<access::local_write, measurement>::allocate(domain, 1)));
  VERBSPP_TRYV(met.channel.read(copy, {.remote = row}));
  std::cout << "at second " << copy[0].second << ": " << copy[0].temperature << " degrees\n";
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
