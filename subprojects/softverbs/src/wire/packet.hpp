// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace softverbs {

/// The purpose of a packet.
enum class packet_kind : std::uint8_t {
  send = 1,
  write,
  read_request,
  read_response,
  acknowledge,
  refuse,
  /// An unreliable datagram; its payload starts with the network header.
  datagram,
  compare_swap,
  fetch_add,
  atomic_write,
  flush,
  /// From raw packet queue pairs: the payload is a whole Ethernet frame. Flow rules and multicast
  /// groups determine the queue pairs that receive it.
  frame,
};

/// True for packets that carry two operands, and no data from the program's memory.
constexpr bool carries_operands(packet_kind kind) noexcept {
  return kind == packet_kind::compare_swap || kind == packet_kind::fetch_add ||
         kind == packet_kind::atomic_write || kind == packet_kind::flush;
}

/// True for requests that are answered, in order, by packets of the kind `read_response`, which may
/// be empty.
constexpr bool fetches(packet_kind kind) noexcept {
  return kind == packet_kind::read_request || carries_operands(kind);
}

/// True for operations on one word, whose address must be divisible by its size.
constexpr bool is_atomic(packet_kind kind) noexcept {
  return carries_operands(kind) && kind != packet_kind::flush;
}

/// True for operations that return the previous value.
constexpr bool gives_value(packet_kind kind) noexcept {
  return kind == packet_kind::compare_swap || kind == packet_kind::fetch_add;
}

/// The access rights that the responder's queue pair and memory region must grant. For a flush,
/// they depend on its operands.
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
/// From unreliable connections: the responder doesn't acknowledge the packet.
inline constexpr std::uint8_t unreliable = 16;
/// A datagram whose network header is valid.
inline constexpr std::uint8_t global = 32;
/// A send that invalidates a memory window's key.
inline constexpr std::uint8_t invalidate = 64;
/// Set on requests and responses of XRC queue pairs.
inline constexpr std::uint8_t xrc = 128;
}  // namespace packet_flag

/// The reason why a responder refuses a packet.
enum class refusal : std::uint8_t {
  none,
  sequence,
  receiver_not_ready,
  invalid_request,
  remote_access,
  remote_operation,
  /// The receiver could not pull the payload. The sender repeats the packet, with the payload.
  not_pulled,
};

/// The header of each packet. The payload comes after it. Unless noted otherwise, fields are in the
/// host's byte order, because packets don't leave the host. The name of a process's socket includes
/// the version of this layout.
struct packet_header {
  packet_kind kind;
  std::uint8_t flags;
  std::uint8_t network;  ///< enum network
  std::uint8_t source;   ///< a station, like `target`
  std::uint8_t target;
  refusal reason;              ///< only for `refuse`
  std::uint8_t rnr_timer;      ///< only for `refuse`: the code of ibv_qp_attr::min_rnr_timer
  std::uint8_t service_level;  ///< only for `datagram`
  std::uint32_t target_qpn;
  std::uint32_t source_qpn;
  std::uint32_t psn;
  std::uint32_t payload;  ///< bytes of data; they follow this header unless the data is pulled
  std::uint32_t offset;   ///< the payload's offset in its message
  std::uint32_t message;  ///< for `write` and `read_request`: bytes of the whole message
  /// The rkey of the memory, or of the window to invalidate. In a datagram, the Q_Key. In a
  /// frame, the tag of its flow rule, which the receiving process sets.
  std::uint32_t key;
  std::uint32_t immediate;  ///< in network byte order
  std::uint64_t address;    ///< the remote address; in a datagram, the destination LID
  /// The number of the shared receive queue that an XRC request addresses.
  std::uint32_t shared_queue;
  /// Not 0 in a `write` whose data is pulled: the lkey of the data. In this case, the address of
  /// the data in that region follows this header, and the receiver reads the sender's memory.
  std::uint32_t source_key;
};
static_assert(sizeof(packet_header) == 56 && std::is_trivially_copyable_v<packet_header>);

/// The number of bytes that follow the header.
constexpr std::uint32_t carried_bytes(const packet_header& header) noexcept {
  return header.source_key != 0 ? std::uint32_t{sizeof(std::uint64_t)} : header.payload;
}

/// The payload of packets that carry operands.
struct atomic_operands {
  /// The value to compare or add, or the value of an atomic write. For a flush, the placements in
  /// the lower 8 bits, and the selectivity level in the bits above them.
  std::uint64_t compare_or_add;
  /// The value to swap in. For a flush, the number of bytes to flush.
  std::uint64_t swap;
};

/// The payload size of all packets of a message but the last one. Larger packets need fewer system
/// calls, but beyond this size, the copies no longer fit in the cache.
inline constexpr std::uint32_t packet_bytes = 32 * 1024;
inline constexpr std::size_t largest_packet = sizeof(packet_header) + packet_bytes;

/// The maximum size of the data of a packet whose data is pulled. Such a packet stands for several,
/// and takes as many sequence numbers as they would (see `packets_of`). The size limits the time
/// for which the receiving device does nothing else, to about 0.1 ms.
inline constexpr std::uint32_t pulled_bytes = 32 * packet_bytes;

/// The size of an Ethernet header without a VLAN tag. A frame that consists of nothing else is
/// accepted, so this is also the minimum size of a frame.
inline constexpr std::uint32_t ethernet_header_bytes = 14;

/// Packet sequence numbers are 24 bits wide and wrap around.
inline constexpr std::uint32_t psn_mask = 0xff'ffff;

/// Returns the number of packets by which `left` is after `right`; negative if it is before.
constexpr std::int32_t psn_distance(std::uint32_t left, std::uint32_t right) noexcept {
  return static_cast<std::int32_t>((left - right) << 8) >> 8;
}

/// Returns the number of sequence numbers that a message takes. An empty message takes one, too.
constexpr std::uint32_t packets_of(std::uint32_t length) noexcept {
  return length == 0 ? 1 : (length - 1) / packet_bytes + 1;
}

}  // namespace softverbs
