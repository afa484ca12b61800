// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// What the ends of a connection tell each other, by the names of InfiniBand's messages: REQ, REP,
/// RTU, REJ, DREQ, DREP, or SIDR_REQ and SIDR_REP.
enum class message_kind : std::uint8_t {
  request = 1,
  reply,
  ready,
  rejection,
  disconnect,
  disconnected,
};

/// All that is said, in one packet of the socket; both ends are of this host.
struct message {
  static constexpr std::uint32_t expected_mark = 0x5356434d;
  static constexpr std::size_t most_private_data = 196;

  std::uint32_t mark = expected_mark;
  message_kind kind{};
  std::uint8_t is_datagram = 0;
  std::uint8_t private_length = 0;
  std::uint8_t reason = 0;
  /// Of who sends a request, and of who it is for.
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
  /// As the sender sees them.
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retries = 0;
  std::uint8_t rnr_retries = 0;
  std::uint8_t has_shared_receives = 0;
  /// Of a request: what for, as `transports` has it.
  std::uint8_t transport = 0;
  std::uint8_t reserved = 0;
  std::array<std::uint8_t, most_private_data> private_data{};
  /// When it was sent, by the clock that all processes of the host share.
  nanoseconds sent_at = 0;
};
static_assert(sizeof(message) == 280);

/// What a message of that kind has room for, as InfiniBand's; the request's also holds the IP
/// addresses. Who receives it gets all of that, with zeros behind what was given.
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

/// What a request that isn't for datagrams asks for, as InfiniBand numbers it.
namespace transports {
inline constexpr std::uint8_t reliable = 0;
inline constexpr std::uint8_t unreliable = 1;
inline constexpr std::uint8_t extended = 3;
}  // namespace transports

/// Of a request that was rejected, as InfiniBand numbers them.
namespace reasons {
inline constexpr std::uint8_t timeout = 4;
inline constexpr std::uint8_t no_listener = 8;
inline constexpr std::uint8_t by_the_program = 28;
inline constexpr std::uint8_t vendor_option = 35;
}  // namespace reasons

/// The status of a service's answer.
namespace answers {
inline constexpr int unsupported = 1;
inline constexpr int rejected = 2;
}  // namespace answers

}  // namespace softverbs
