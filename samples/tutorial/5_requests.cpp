// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 5 of docs/guide/tutorial.md: requests and answers, with a pool of messages.
///
///     5_requests --port 4711              the server
///     5_requests --port 4711 localhost    the client

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "tutorial 5", .version = 1};

transport_result<void> serve(const protection_domain& domain, std::string_view port) {
  VERBSPP_TRY(listener, tcp_listener::open(port));
  VERBSPP_TRY(socket, listener.accept(patience));

  // A pool of 64 places of 256 bytes. The inbox posts receives into them.
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(requests, inbox::open(prepared, pool));
  VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), patience, protocol));

  for (int answered = 0;; ++answered) {
    auto request = requests.wait(patience);
    if (!request.has_value()) {
      std::cout << answered << " requests answered, then: " << request.error() << '\n';
      return success();
    }
    // The answer is sent from the place in which the request has arrived.
    VERBSPP_TRYV(met.channel.post_send(std::move(request).assume_value()));
  }
}

transport_result<void> visit(const protection_domain& domain, std::string_view host,
                             std::string_view port) {
  VERBSPP_TRY(socket, tcp_socket::connect(host, port, patience));
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), patience, protocol));

  for (int i = 0; i < 1000; ++i) {
    const std::string text = "request " + std::to_string(i);
    VERBSPP_TRY(request, pool.take());
    VERBSPP_TRYV(request.assign(std::as_bytes(std::span(text))));
    VERBSPP_TRYV(met.channel.post_send(std::move(request)));
    VERBSPP_TRY(answer, answers.wait(patience));
    if (!std::ranges::equal(answer.bytes(), std::as_bytes(std::span(text))))
      return error(error_kind::mismatch, "compare the answer", "it differs from the request");
  }
  std::cout << "1000 answers\n";
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
