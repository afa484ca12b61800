// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 2 of docs/guide/tutorial.md: two channels of one process, and a message.

#include <verbspp/channel.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;
using text_buffer = registered_buffer<access::local_write, char>;

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));

  // Two prepared channels. They have endpoints, and can post receives.
  VERBSPP_TRY(left, domain.build_channel().build());
  VERBSPP_TRY(right, domain.build_channel().build());
  VERBSPP_TRY(empty, text_buffer::allocate(domain, 64));
  VERBSPP_TRY(arriving, right.post_receive(std::move(empty)));

  // Each one connects to the endpoint of the other.
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  VERBSPP_TRY(sender, std::move(left).handshake(right_end));
  VERBSPP_TRY(receiver, std::move(right).handshake(left_end));

  // The send owns its buffer, and returns it with the result.
  VERBSPP_TRY(full, text_buffer::allocate(domain, 64));
  std::ranges::copy(std::string_view("hello, verbs"), full.begin());
  VERBSPP_TRY(sending, sender.post_send(std::move(full)));
  auto [sent, returned] = sending.wait(5s);
  VERBSPP_TRYV(sent);

  auto [received, text] = arriving.wait(5s);
  VERBSPP_TRY(work, received);
  std::cout << work.byte_count().value_or(0) << " bytes arrived: " << text.data() << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
