// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// The messages between the ends of a connection. They correspond to InfiniBand's REQ, REP, RTU,
/// REJ, DREQ and DREP, or SIDR_REQ and SIDR_REP.
enum class message_kind : std::uint8_t {
  request = 1,
  reply,
  ready,
  rejection,
  disconnect,
  disconnected,
};

/// A message, which is sent as one packet through a Unix socket.
struct message {
  static constexpr std::uint32_t expected_mark = 0x5356434d;
  static constexpr std::size_t most_private_data = 196;

  std::uint32_t mark = expected_mark;
  message_kind kind{};
  std::uint8_t is_datagram = 0;
  std::uint8_t private_length = 0;
  std::uint8_t reason = 0;
  /// The port numbers of the sender and of the receiver of a request.
  std::uint16_t source_port = 0;
  std::uint16_t target_port = 0;
  std::uint32_t unused = 0;
  ibv_gid source{};
  ibv_gid target{};
  std::uint32_t queue_pair = 0;
  std::uint32_t psn = 0;
  std::uint32_t qkey = 0;
  std::uint32_t vendor = 0;
  std::uint32_t vendor_options = 0;
  /// The following parameters are from the sender's point of view.
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint8_t has_shared_receives = 0;
  /// The requested transport, one of `transports`.
  std::uint8_t transport = 0;
  std::uint8_t reserved = 0;
  std::array<std::uint8_t, most_private_data> private_data{};
  /// The time of sending, by the clock that all processes of the host share.
  nanoseconds sent_at = 0;
};
static_assert(sizeof(message) == 280);

/// The number of bytes for private data in a message of this kind. For requests, replies and
/// rejections, it is the same as in InfiniBand, where the IP addresses take up part of a request's
/// private data. The receiver always gets all of these bytes, in which zeros follow the data.
constexpr std::size_t private_room(message_kind kind, bool is_datagram) noexcept {
  switch (kind) {
    case message_kind::request:
      return is_datagram ? 180 : 56;
    case message_kind::reply:
      return is_datagram ? 136 : 196;
    case message_kind::rejection:
      return is_datagram ? 136 : 148;
    default:
      return 0;
  }
}

/// The transports of requests for connections, numbered as in InfiniBand.
namespace transports {
inline constexpr std::uint8_t reliable = 0;
inline constexpr std::uint8_t unreliable = 1;
inline constexpr std::uint8_t extended = 3;
}  // namespace transports

/// The reasons for rejecting a request, numbered as in InfiniBand.
namespace reasons {
inline constexpr std::uint8_t no_listener = 8;
inline constexpr std::uint8_t by_the_program = 28;
inline constexpr std::uint8_t vendor_option = 35;
}  // namespace reasons

/// The statuses of events for refused datagram requests, numbered as in InfiniBand.
namespace answers {
inline constexpr int unsupported = 1;
inline constexpr int rejected = 2;
}  // namespace answers

}  // namespace softverbs
