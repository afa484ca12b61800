// SPDX-License-Identifier: Apache-2.0
/// \file
/// Connects two channels of one device to each other, and sends a message.

#include <verbspp/channel.hpp>

#include <iostream>

static verbspp::transport_result<verbspp::completed_work> say_hello(const char* device_name) {
  using namespace verbspp;
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(left, domain.build_channel().max_inline_data(64).build());
  VERBSPP_TRY(right, domain.build_channel().build());
  VERBSPP_TRY(buffer, (registered_buffer<access::local_write, char>::allocate(domain, 64)));
  VERBSPP_TRY(arriving, right.post_receive(std::move(buffer)));
  VERBSPP_TRY(sender, std::move(left).handshake(right.endpoint()));
  VERBSPP_TRY(receiver, std::move(right).handshake(sender.endpoint()));
  VERBSPP_TRYV(sender.send({.elements = inline_payload("hello, verbs")}));
  auto [received, text] = arriving.wait();
  if (received.has_value()) std::cout << receiver << "\ngot: " << text.data() << '\n';
  return received;
}

int main(int argc, char** argv) {
  const auto outcome = say_hello(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_error()) std::cerr << outcome.error() << '\n';
  return outcome.has_error() ? 1 : 0;
}
