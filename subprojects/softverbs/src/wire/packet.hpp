// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace softverbs {

/// What a packet is for.
enum class packet_kind : std::uint8_t {
  send = 1,
  write,
  read_request,
  read_response,
  acknowledge,
  refuse,
  /// Of unreliable datagrams; its payload starts with the network's header.
  datagram,
  compare_swap,
  fetch_add,
  atomic_write,
  flush,
  /// Of raw packet queue pairs: its payload is a whole frame of Ethernet, for whoever wants it.
  frame,
};

/// Its packet carries two numbers, and nothing of the program's memory.
constexpr bool carries_operands(packet_kind kind) noexcept {
  return kind == packet_kind::compare_swap || kind == packet_kind::fetch_add ||
         kind == packet_kind::atomic_write || kind == packet_kind::flush;
}

/// A request that is answered by itself and in its turn: by a read response, which may be empty.
constexpr bool fetches(packet_kind kind) noexcept {
  return kind == packet_kind::read_request || carries_operands(kind);
}

/// It works on one word, which has to be at an address that its size divides.
constexpr bool is_atomic(packet_kind kind) noexcept {
  return carries_operands(kind) && kind != packet_kind::flush;
}

/// Its answer is the value before.
constexpr bool gives_value(packet_kind kind) noexcept {
  return kind == packet_kind::compare_swap || kind == packet_kind::fetch_add;
}

/// What the queue pair and the region of whoever carries it out have to allow; of a flush, its
/// operands say.
constexpr unsigned right_to(packet_kind kind) noexcept {
  switch (kind) {
    case packet_kind::write:
    case packet_kind::atomic_write:
      return IBV_ACCESS_REMOTE_WRITE;
    case packet_kind::read_request:
      return IBV_ACCESS_REMOTE_READ;
    case packet_kind::compare_swap:
    case packet_kind::fetch_add:
      return IBV_ACCESS_REMOTE_ATOMIC;
    default:
      return 0;
  }
}

/// Bits of packet_header::flags.
namespace packet_flag {
inline constexpr std::uint8_t first = 1;
inline constexpr std::uint8_t last = 2;
inline constexpr std::uint8_t immediate = 4;
inline constexpr std::uint8_t solicited = 8;
/// Of unreliable connections: nothing answers it.
inline constexpr std::uint8_t unreliable = 16;
/// A datagram whose network header says something.
inline constexpr std::uint8_t global = 32;
/// A send that takes a window's key back.
inline constexpr std::uint8_t invalidate = 64;
/// Of XRC, in both directions.
inline constexpr std::uint8_t xrc = 128;
}  // namespace packet_flag

/// Why a responder refuses a packet.
enum class refusal : std::uint8_t {
  none,
  sequence,
  receiver_not_ready,
  invalid_request,
  remote_access,
  remote_operation,
};

/// The start of each message between two processes; the payload follows. In the
/// host's byte order, because a Unix socket doesn't leave the host. The socket's
/// name carries the version of this layout.
struct packet_header {
  packet_kind kind;
  std::uint8_t flags;
  std::uint8_t network;  ///< enum network
  std::uint8_t source;   ///< as all stations
  std::uint8_t target;
  refusal reason;              ///< refuse only
  std::uint8_t rnr_timer;      ///< refuse only, as coded in IBV_QP_MIN_RNR_TIMER
  std::uint8_t service_level;  ///< datagram only
  std::uint32_t target_qpn;
  std::uint32_t source_qpn;
  std::uint32_t psn;
  std::uint32_t payload;  ///< bytes behind this header
  std::uint32_t offset;   ///< of the payload in its message
  std::uint32_t message;  ///< bytes of the whole message: write, read_request
  std::uint32_t key;  ///< the rkey of what names memory, or to invalidate; the qkey of a datagram
  std::uint32_t immediate;  ///< in network byte order
  std::uint64_t address;    ///< of remote memory; a datagram's destination LID
  /// The number of the shared receive queue that a request of XRC is for.
  std::uint32_t shared_queue;
  std::uint32_t reserved;
};
static_assert(sizeof(packet_header) == 56 && std::is_trivially_copyable_v<packet_header>);

/// The payload of what carries operands.
struct atomic_operands {
  /// Or the value of an atomic write, or how to flush: the placements, and above these 8 bits the
  /// level.
  std::uint64_t compare_or_add;
  /// Or how many bytes to flush.
  std::uint64_t swap;
};

/// Payload of all but a message's last packet. Bigger packets make fewer system
/// calls; above this, the copies fall out of the cache.
inline constexpr std::uint32_t packet_bytes = 32 * 1024;
inline constexpr std::size_t largest_packet = sizeof(packet_header) + packet_bytes;

/// An Ethernet header without a VLAN tag, the least that a frame has.
inline constexpr std::uint32_t ethernet_header_bytes = 14;

/// Packet sequence numbers are 24 bits wide and wrap around.
inline constexpr std::uint32_t psn_mask = 0xff'ffff;

/// How far `left` is behind `right`; negative if it is ahead.
constexpr std::int32_t psn_distance(std::uint32_t left, std::uint32_t right) noexcept {
  return static_cast<std::int32_t>((left - right) << 8) >> 8;
}

/// Packets of a message; an empty one has one packet, too.
constexpr std::uint32_t packets_of(std::uint32_t length) noexcept {
  return length == 0 ? 1 : (length - 1) / packet_bytes + 1;
}

}  // namespace softverbs
