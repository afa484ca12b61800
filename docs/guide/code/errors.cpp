// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of docs/guide/errors.md. It is compiled, not run.

#include <verbspp/channel.hpp>

#include <chrono>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

namespace guide {

using namespace verbspp;

result<protection_domain> set_up(std::string_view device_name) {
  VERBSPP_TRY(device, open_device(device_name));
  return protection_domain::allocate(device);
}

transport_result<void> greet(channel& peer, const registered_buffer<>& buffer) {
  VERBSPP_TRY(words, buffer.gather(0, 12));
  VERBSPP_TRYV(peer.send({.elements = words}));
  return success();
}

void explain(const error& failure) {
  std::cerr << failure << '\n';
  if (failure == error_kind::timed_out) std::cerr << "the timeout of a wait expired\n";
  if (failure == std::errc::timed_out) std::cerr << "a timeout expired, or no peer answered\n";
  if (const auto work = work_error::from(failure))
    std::cerr << "a request failed: " << to_string(work->status()) << ", vendor code "
              << work->vendor_code() << '\n';
  if (const auto batch = batch_error::from(failure))
    std::cerr << batch->accepted() << " requests of the batch were posted\n";
}

protection_domain set_up_or_throw(std::string_view device_name) {
  return protection_domain::allocate(open_device(device_name).value()).value();
}

transport_result<void> send_or_reconnect(channel& peer, const registered_buffer<>& buffer,
                                         const endpoint& remote) {
  const auto sent = peer.send(buffer, std::chrono::seconds(5));
  if (sent.has_value()) return success();
  if (const auto cause = peer.failure()) std::cerr << cause->message() << '\n';
  VERBSPP_TRY(local, peer.renew());
  std::cerr << "the peer needs " << local << '\n';
  VERBSPP_TRYV(peer.handshake(remote));
  return success();
}

}  // namespace guide
