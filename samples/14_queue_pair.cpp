// SPDX-License-Identifier: Apache-2.0
/// \file
/// Below the level of channels: two queue pairs of one device, connected to each other. The program
/// polls the completion queue itself, and keeps the memory of its requests alive.

#include <verbspp/verbspp.hpp>

#include <array>
#include <iostream>
#include <string_view>

namespace {

using namespace verbspp;

/// Waits for the next completion of the queue, and returns its result.
transport_result<completed_work> next_completion(const completion_queue& queue) {
  std::array<work_completion, 1> slots;
  for (;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (arrived.empty()) continue;
    VERBSPP_TRY(work, arrived.front().get());
    return work;
  }
}

transport_result<void> say_hello(std::string_view device_name) {
  // A device, and the domain that queue pairs and memory share.
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(queue, completion_queue::create(context, 32));

  // Registered memory, with its rights in the type: the device may write to the inbox, but only
  // read the outbox.
  std::array<char, 64> outbox{"hello, verbs"};
  std::array<char, 64> inbox{};
  VERBSPP_TRY(outgoing, register_memory(domain, outbox));
  VERBSPP_TRY(incoming, register_memory<access::local_write>(domain, inbox));

  // If you omit one of these parameters, the compiler names it.
  const auto builder =
      build_queue_pair<transport::rc>().protection_domain(domain).completion_queue(queue).access(
          access::local_write);
  VERBSPP_TRY(left, builder.build());
  VERBSPP_TRY(right, builder.build());

  // A prepared queue pair accepts receives, so one can be posted before the peer's first message
  // arrives.
  VERBSPP_TRY(into, incoming.scatter());
  VERBSPP_TRYV(right.post_receive({.elements = into}, {.id = 1}));

  // Each end passes its endpoint to the other (here: within one process), and connects. The
  // handshake consumes the prepared queue pair; only the connected one can send.
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  VERBSPP_TRY(sender, std::move(left).handshake(right_end));
  VERBSPP_TRY(receiver, std::move(right).handshake(left_end));

  VERBSPP_TRY(from, outgoing.gather());
  VERBSPP_TRYV(sender.post_send({.elements = from}, {.id = 2}));

  // One completion for the send, and one for the receive.
  for (int i = 0; i < 2; ++i) {
    VERBSPP_TRY(work, next_completion(queue));
    std::cout << to_string(work.operation()) << " done\n";
  }
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
