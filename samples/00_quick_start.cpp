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
  // A device, and the domain that connections and memory share.
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(left, domain.build_channel().build());
  VERBSPP_TRY(right, domain.build_channel().build());

  // Registered memory, which the device may access. It is initially zero.
  VERBSPP_TRY(outbox, text_buffer::allocate(domain, 64));
  VERBSPP_TRY(empty, text_buffer::allocate(domain, 64));

  // A prepared channel accepts receives, so that one is ready for the peer's first message. The
  // buffer moves into the request, so no other code can access it, and is returned with the result.
  VERBSPP_TRY(arriving, right.post_receive(std::move(empty)));

  // Each end gives the other its endpoint (here: within one process), and connects. The handshake
  // consumes the prepared channel; only the connected one can send.
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  VERBSPP_TRY(sender, std::move(left).handshake(right_end));
  VERBSPP_TRY(receiver, std::move(right).handshake(left_end));

  constexpr std::string_view greeting = "hello, verbs";
  std::ranges::copy(greeting, outbox.begin());
  VERBSPP_TRY(words, outbox.gather(0, greeting.size()));
  VERBSPP_TRYV(sender.send({.elements = words}));

  // Every wait has a limit. When it is reached, the channel breaks, and the buffer is returned.
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
