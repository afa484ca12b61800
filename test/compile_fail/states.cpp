// SPDX-License-Identifier: Apache-2.0

// Operations that the state of a queue pair, its shared receive queue, or a missing std::move
// forbids.

#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

// case: assume_connected
// expect: on its own, a device moves a queue pair only to ERR or SQE
// expect: assume_state_unchecked
auto assume(prepared_queue_pair<transport::rc> queue_pair) {
  return std::move(queue_pair)
      .assume_state<BAD(queue_pair_state::ready_to_send) GOOD(queue_pair_state::error)>();
}

// case: assume_send_queue_error_of_reliable_connection
// expect: only a failed send on a UC or UD queue pair in RTS or SQD leads to SQE: every other
// expect: failure leads to ERR
auto assume(connected_queue_pair<transport::rc> queue_pair) {
  return std::move(queue_pair)
      .assume_state<BAD(queue_pair_state::send_queue_error) GOOD(queue_pair_state::error)>();
}

// case: bind_before_connected
// expect: this queue pair or channel is not connected, so nothing can be sent yet: call
// expect: std::move(queue_pair).handshake(remote_endpoint) (on UD, .activate()) or modify, and use
// expect: the queue pair in RTS that it returns
using queue_pair_type = BAD(prepared_queue_pair) GOOD(connected_queue_pair)<transport::rc>;
auto post(queue_pair_type& queue_pair, memory_window<memory_window_type::type_2>& window,
          const window_part<access::remote_write>& part) {
  return queue_pair.post_bind(window, part, {.id = 1});
}

// case: handshake_twice
// expect: handshake() (on UD, activate()) needs a prepared queue pair, in INIT, like the one that
// expect: build() returns
using queue_pair = BAD(connected_queue_pair) GOOD(prepared_queue_pair)<transport::rc>;
auto connect(queue_pair&& queue_pair, const endpoint& remote) {
  return std::move(queue_pair).handshake(remote);
}

// case: handshake_without_move
// expect: the handshake consumes the queue pair: write
// expect: std::move(queue_pair).handshake(remote_endpoint)
auto connect(prepared_queue_pair<transport::rc> queue_pair, const endpoint& remote) {
  return BAD(queue_pair) GOOD(std::move(queue_pair)).handshake(remote);
}

// case: OPERATION_before_connected
// columns: OPERATION
// row: read
// row: send
// row: write
// expect: this queue pair or channel is not connected, so nothing can be sent yet: call
// expect: std::move(queue_pair).handshake(remote_endpoint)
using queue_pair_type = BAD(prepared_queue_pair) GOOD(connected_queue_pair)<transport::rc>;
auto post(queue_pair_type& queue_pair, const OPERATION_operation& request) {
  return queue_pair.post_OPERATION(request);
}

// case: prepare_connected
// expect: only a queue pair in RESET can be prepared: see to_reset()
using queue_pair_type = queue_pair<transport::rc, BAD(ready_to_send) GOOD(reset)>;
auto prepare(queue_pair_type queue_pair) { return std::move(queue_pair).prepare(); }

// case: send_when_ready_to_receive
// expect: a queue pair in RTR only receives: nothing can be sent before it is in RTS
using queue_pair_type = queue_pair<transport::rc, BAD(ready_to_receive) GOOD(ready_to_send)>;
auto post(queue_pair_type& queue_pair, const send_operation& request) {
  return queue_pair.post_send(request);
}

// case: receive_beside_shared_receive_queue
// expect: this queue pair takes its receives from a shared receive queue: post them there
using queue_pair_type = connected_queue_pair<transport::rc BAD(, receive_queue_kind::shared)>;
auto post(queue_pair_type& queue_pair, const receive_operation& request) {
  return queue_pair.post_receive(request);
}
