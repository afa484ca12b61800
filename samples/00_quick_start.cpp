// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two channels of one device, connected to each other, and a message.

#include <verbspp/channel.hpp>

#include <chrono>
#include <iostream>
#include <string_view>
#include <utility>

using namespace verbspp;
using text_buffer = registered_buffer<access::local_write, char>;

static transport_result<void> say_hello(std::string_view device_name) {
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(left, domain.build_channel().max_inline_data(64).build());
  VERBSPP_TRY(right, domain.build_channel().build());
  // The receive owns its buffer until it has finished, so no other code can touch the memory.
  VERBSPP_TRY(buffer, text_buffer::allocate(domain, 64));
  VERBSPP_TRY(arriving, right.post_receive(std::move(buffer)));
  // Each end needs the endpoint of the other. A handshake consumes the prepared channel.
  const endpoint left_end = left.endpoint(), right_end = right.endpoint();
  VERBSPP_TRY(sender, std::move(left).handshake(right_end));
  VERBSPP_TRY(receiver, std::move(right).handshake(left_end));
  VERBSPP_TRYV(sender.send({.elements = inline_payload("hello, verbs")}));
  auto [received, inbox] = arriving.wait(std::chrono::seconds(5));
  VERBSPP_TRYV(received);
  std::cout << receiver << "\ngot: " << inbox.data() << '\n';
  return success();
}

int main(int argc, char** argv) {
  const auto outcome = say_hello(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_error()) std::cerr << outcome.error() << '\n';
  return outcome.has_error() ? 1 : 0;
}
