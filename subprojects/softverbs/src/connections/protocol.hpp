// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "connections/message.hpp"

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

// The parameters of connections.

inline constexpr nanoseconds millisecond = 1'000'000;
/// The time limit for an answer. The kernel, which repeats a request fifteen times, waits somewhat
/// longer.
inline constexpr nanoseconds longest_answer = 60'000 * millisecond;
/// The time after which a request is refused if there is no listener for it. Some programs close a
/// listener and reopen it between two connections. On a network, a request takes longer, and would
/// probably arrive after the listener was reopened.
inline constexpr nanoseconds longest_absence = 200 * millisecond;
/// The interval at which a client checks whether a listener exists and has room for its request,
/// and at which both ends retry after a lack of resources.
inline constexpr nanoseconds between_attempts = 10 * millisecond;
/// The time for which packets of an ended connection may still be in flight. Kernels that assume a
/// packet lifetime of about a second on RoCE wait about as long.
inline constexpr nanoseconds time_wait = 2'148 * millisecond;
/// The time limit for a client's request, counted from when the listener accepted the client's
/// socket.
inline constexpr nanoseconds longest_silence = 5'000 * millisecond;
inline constexpr std::size_t most_callers = 64;

inline constexpr int longest_backlog = 1024;
inline constexpr std::uint32_t low_24_bits = 0xff'ffff;
inline constexpr std::uint8_t usual_timeout = 17;
inline constexpr std::uint8_t hops = 64;
inline constexpr std::uint8_t most_retries = 7;
/// The value with which a program requests the maximum number of reads.
inline constexpr std::uint8_t own_choice = RDMA_MAX_RESP_RES;
static_assert(own_choice == static_cast<int>(RDMA_MAX_INIT_DEPTH));

inline std::uint8_t transport_of(ibv_qp_type type) noexcept {
  switch (type) {
    case IBV_QPT_UC:
      return transports::unreliable;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return transports::extended;
    default:
      return transports::reliable;
  }
}

inline bool is_valid(const message& said) noexcept {
  return said.mark == message::expected_mark && said.kind >= message_kind::request &&
         said.kind <= message_kind::disconnected && said.is_datagram <= 1 &&
         said.private_length <= private_room(said.kind, said.is_datagram != 0);
}

}  // namespace softverbs
