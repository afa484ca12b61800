// SPDX-License-Identifier: Apache-2.0

// Operations and parameters that do not fit the transport.

#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using enum queue_pair_state;

// case: OPERATION_on_WITHOUT
// columns: OPERATION | WITHOUT | WITH | REASON
// row: compare_and_swap | ud | rc | UD carries only sends: atomic operations need RC
// row: fetch_and_add | uc | rc | UC carries no atomic operations, because it has no responses: atomic operations need RC
// row: local_invalidate | uc | rc | verbspp invalidates rkeys only on RC
// row: read | ud | rc | UD carries only sends: an RDMA read needs RC
// row: read | uc | rc | UC carries no RDMA reads, because it has no responses: an RDMA read needs RC
// row: write | ud | uc | UD carries only sends: an RDMA write needs RC or UC
// expect: REASON
using queue_pair_type = connected_queue_pair<BAD(transport::WITHOUT) GOOD(transport::WITH)>;
auto post(queue_pair_type& queue_pair, const OPERATION_operation& request) {
  return queue_pair.post_OPERATION(request);
}

// case: access_of_datagram
// expect: a UD queue pair is not connected to a peer: the handshake, the access flags, the path
// expect: MTU and the receive PSN are for RC and UC
constexpr transport type = BAD(transport::ud) GOOD(transport::uc);
auto builder() { return build_queue_pair<type>().access(access::remote_write); }

// case: ack_timeout_without_acknowledgements
// expect: only RC has acknowledgements: UC and UD have no timeouts, no retries
constexpr transport type = BAD(transport::uc) GOOD(transport::rc);
auto builder() { return build_queue_pair<type>().ack_timeout(14); }

// case: activate_connection
// expect: only UD sends datagrams: the queue key, activate() and multicast groups do not exist on
// expect: RC and UC
constexpr transport type = BAD(transport::rc) GOOD(transport::ud);
auto activate(prepared_queue_pair<type> queue_pair) { return std::move(queue_pair).activate(); }

// case: bind_on_datagram
// expect: UD carries only sends, so no peer could access memory through a window: binding one
// expect: needs RC or UC
using queue_pair_type = connected_queue_pair<BAD(transport::ud) GOOD(transport::uc)>;
auto post(queue_pair_type& queue_pair, memory_window<memory_window_type::type_1>& window,
          const window_part<access::remote_write>& part) {
  return queue_pair.post_bind(window, part, {.id = 1});
}

// case: datagram_on_connection
// expect: only UD sends have a destination
// within: 15
using queue_pair_type = connected_queue_pair<BAD(transport::rc) GOOD(transport::ud)>;
auto post(queue_pair_type& queue_pair, const datagram_operation& request) {
  return queue_pair.post_send(request);
}

// case: datagram_without_destination
// expect: a UD queue pair has no single peer to send to: specify the destination with .to =
// expect: address_handle.destination(number, qkey)
// within: 15
auto post(connected_queue_pair<transport::ud>& queue_pair, const datagram_destination& to) {
  return queue_pair.post_send({GOOD(.to = to)}, {.id = 1});
}

// case: handshake_of_datagram
// expect: a UD queue pair is not connected to a peer: the handshake, the access flags, the path
// expect: MTU and the receive PSN are for RC and UC
constexpr transport type = BAD(transport::ud) GOOD(transport::uc);
auto connect(prepared_queue_pair<type> queue_pair, const endpoint& remote) {
  return std::move(queue_pair).handshake(remote);
}

// case: multicast_on_connection
// expect: only UD sends datagrams: the queue key, activate() and multicast groups do not exist on
// expect: RC and UC
constexpr transport type = BAD(transport::uc) GOOD(transport::ud);
auto join(connected_queue_pair<type>& queue_pair, const gid& group) {
  return queue_pair.join_multicast(group);
}
