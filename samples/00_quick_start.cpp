// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using text_buffer = registered_buffer<access::local_write, char>;

transport_result<void> say_hello(std::string_view device_name) {
  // A device, and on it what connections and memory have to share.
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(left, domain.build_channel().build());
  VERBSPP_TRY(right, domain.build_channel().build());

  // Memory that the device may use. It is zero at first.
  VERBSPP_TRY(outbox, text_buffer::allocate(domain, 64));
  VERBSPP_TRY(empty, text_buffer::allocate(domain, 64));

  // What is prepared takes receives, so that the peer's first message finds one. The buffer moves
  // into the work, out of everybody's reach, and comes back with the result.
  VERBSPP_TRY(arriving, right.post_receive(std::move(empty)));

  // Each end gives the other its endpoint (here: within one process), and connects. What was
  // prepared is gone then; only what is connected can send.
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  VERBSPP_TRY(sender, std::move(left).handshake(right_end));
  VERBSPP_TRY(receiver, std::move(right).handshake(left_end));

  constexpr std::string_view greeting = "hello, verbs";
  std::ranges::copy(greeting, outbox.begin());
  VERBSPP_TRY(words, outbox.gather(0, greeting.size()));
  VERBSPP_TRYV(sender.send({.elements = words}));

  // Every wait has a limit. If it passes, the connection is given up, and the buffer comes back.
  auto [received, inbox] = arriving.wait(std::chrono::seconds(5));
  VERBSPP_TRYV(received);
  std::cout << receiver << "\ngot: " << inbox.data() << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = say_hello(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
