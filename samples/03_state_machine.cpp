// SPDX-License-Identifier: Apache-2.0
/// \file
/// The state machine without `handshake`: connects two queue pairs step by step, drains one, breaks
/// it, and connects both again.

#include <verbspp/verbspp.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using prepared = prepared_queue_pair<transport::rc>;
using connected = connected_queue_pair<transport::rc>;

/// Performs the steps of a handshake, with attributes that this function chooses.
result<connected> connect(prepared queue_pair, const endpoint& remote) {
  using enum queue_pair_state;
  VERBSPP_TRY(way, queue_pair.path_to(remote));
  const endpoint local = queue_pair.endpoint();
  // The code does not compile if a required attribute is missing, or if the transition does not
  // accept an attribute.
  VERBSPP_TRY(receiver, std::move(queue_pair)
                            .modify(attributes_for<transport::rc, init, ready_to_receive>()
                                        .path(way)
                                        .path_mtu(std::min(local.mtu, remote.mtu))
                                        .destination(remote.number)
                                        .receive_psn(remote.send_psn)
                                        .max_reads_as_target(1)
                                        .min_rnr_timer(12)));
  return std::move(receiver).modify(attributes_for<transport::rc, ready_to_receive, ready_to_send>()
                                        .send_psn(local.send_psn)
                                        .ack_timeout(14)
                                        .ack_retry_count(7)
                                        .rnr_retry_count(rnr_retry_count::unlimited())
                                        .max_reads_as_initiator(1));
}

/// Drains the send queue, changes the ACK timeout, and continues.
result<connected> slow_down(connected queue_pair) {
  using enum queue_pair_state;
  VERBSPP_TRY(stopping,
              std::move(queue_pair)
                  .modify(attributes_for<transport::rc, ready_to_send, send_queue_drained>()));
  for (;;) {
    VERBSPP_TRY(status, stopping.query());
    if (!status.is_draining()) break;
  }
  VERBSPP_TRYV(stopping.modify(
      attributes_for<transport::rc, send_queue_drained, send_queue_drained>().ack_timeout(18)));
  return std::move(stopping).modify(
      attributes_for<transport::rc, send_queue_drained, ready_to_send>());
}

/// Resets a queue pair that the device has moved to ERR, so that it can be connected again.
result<prepared> start_over(connected queue_pair) {
  VERBSPP_TRY(state, queue_pair.query_state());
  std::cout << "a failed queue pair is in " << to_string(state) << '\n';
  auto failed = std::move(queue_pair).assume_state<queue_pair_state::error>();
  VERBSPP_TRY(idle, std::move(failed).to_reset());
  return std::move(idle).prepare();
}

/// Waits for the next completion of the queue.
result<work_completion> next_completion(const completion_queue& queue) {
  std::array<work_completion, 1> slots;
  for (;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (!arrived.empty()) return arrived.front();
  }
}

/// Sends a byte; the content does not matter here.
transport_result<void> send_a_byte(connected& from, connected& to, const completion_queue& queue,
                                   const memory_region<access::local_write>& memory) {
  VERBSPP_TRY(into, memory.scatter(0, 1));
  VERBSPP_TRY(out, memory.gather(1, 1));
  VERBSPP_TRYV(to.post_receive({.elements = into}, {.id = 1}));
  VERBSPP_TRYV(from.post_send({.elements = out}, {.id = 2}));
  for (int i = 0; i < 2; ++i) {
    VERBSPP_TRY(completion, next_completion(queue));
    VERBSPP_TRY(work, completion.get());
    std::cout << to_string(work.operation()) << " done\n";
  }
  return success();
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(queue, completion_queue::create(context, 32));
  std::array<char, 2> bytes{};
  VERBSPP_TRY(memory, register_memory<access::local_write>(domain, bytes));
  const auto builder =
      build_queue_pair<transport::rc>().protection_domain(domain).completion_queue(queue).access(
          access::local_write);
  VERBSPP_TRY(left, builder.build());
  VERBSPP_TRY(right, builder.build());
  endpoint left_end = left.endpoint();
  endpoint right_end = right.endpoint();
  VERBSPP_TRY(sender, connect(std::move(left), right_end));
  VERBSPP_TRY(receiver, connect(std::move(right), left_end));
  VERBSPP_TRYV(send_a_byte(sender, receiver, queue, memory));
  VERBSPP_TRY(slow, slow_down(std::move(sender)));
  VERBSPP_TRYV(send_a_byte(slow, receiver, queue, memory));

  // A write to an address that the peer does not allow breaks the connection.
  const remote_memory<access::remote_write> nowhere(0, 1, remote_key(0U));
  VERBSPP_TRY(out, memory.gather(1, 1));
  VERBSPP_TRYV(slow.post_write({.elements = out, .remote = nowhere}, {.id = 3}));
  VERBSPP_TRY(completion, next_completion(queue));
  if (const auto work = completion.get(); work.has_error()) std::cout << work.error() << '\n';

  VERBSPP_TRY(left_again, start_over(std::move(slow)));
  VERBSPP_TRY(right_again, start_over(std::move(receiver)));
  // Both ends have new packet sequence numbers, so each needs the other's endpoint again.
  left_end = left_again.endpoint();
  right_end = right_again.endpoint();
  VERBSPP_TRY(new_sender, connect(std::move(left_again), right_end));
  VERBSPP_TRY(new_receiver, connect(std::move(right_again), left_end));
  return send_a_byte(new_sender, new_receiver, queue, memory);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
