// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/qp/address_offer.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/state.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

namespace verbspp {

/// What the peer needs to know of a queue pair in order to connect to it (on UD: to send to it),
/// and to explain why it cannot.
///
/// A plain value. It travels to the peer by any means of the caller's, as `encode` writes it.
struct endpoint {
  static constexpr std::size_t encoded_size = 368;
  /// That of format version 2, and what tells of any version how long it is.
  static constexpr std::size_t former_encoded_size = 44;

  transport type = transport::rc;
  queue_pair_number number{};
  verbspp::link_layer link_layer = verbspp::link_layer::infiniband;
  verbspp::lid lid{};  ///< 0 on Ethernet
  /// On Ethernet, the one of `addresses` that is in use, or else the first. One that is not among
  /// them was set by hand, and is the only one then.
  gid address{};
  verbspp::gid_type gid_type = verbspp::gid_type::infiniband;
  /// Its GID index was: whatever speaks against the address, it is tried.
  bool is_address_set_by_hand = false;
  /// The largest path MTU that this end takes: the port's active one, or less if so asked.
  path_mtu mtu{};
  /// It was asked for, and this end takes no smaller one.
  bool is_mtu_asked_for = false;
  /// What this end's packets carry; 0 if it takes what the peer says. Ends that say different ones
  /// don't connect: packets would be treated well on the one way, and their acknowledgements not.
  verbspp::traffic_class traffic_class{};
  /// The same, of service levels.
  verbspp::service_level service_level{};
  packet_sequence_number send_psn{};
  /// The reads and atomics that this end would like to have outstanding at the peer.
  read_depth reads_as_initiator{};
  /// The reads and atomics that this end can answer at once.
  read_depth reads_as_target{};
  queue_key qkey{};  ///< of UD, what datagrams have to carry; 0 otherwise
  /// What the endpoints of one channel have in common, a random number; 0 of a plain queue pair.
  std::uint32_t owner{};
  /// Counts the connections of that owner, from 1; 0 of a plain queue pair. `check_newer` tells an
  /// endpoint of an earlier one.
  std::uint32_t generation{};
  /// On Ethernet, what this end may be reached by: the handshake takes the pair that fits best. The
  /// one whose GID index was set by hand is alone in it. Empty on InfiniBand.
  address_offer addresses{};

  /// The 368 bytes that any machine's `decode` understands, numbers big-endian:
  ///
  /// | offset | bytes | field                                                          |
  /// | ------ | ----- | -------------------------------------------------------------- |
  /// | 0      | 1     | 0x76                                                           |
  /// | 1      | 1     | format version: 3                                              |
  /// | 2      | 1     | transport: 2 RC, 3 UC, 4 UD (as `ibv_qp_type`)                 |
  /// | 3      | 1     | link layer: 1 InfiniBand, 2 Ethernet (as `IBV_LINK_LAYER_*`)   |
  /// | 4      | 1     | GID type: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2 (`ibv_gid_type`)  |
  /// | 5      | 1     | MTU: 1 (256 bytes) to 5 (4096) (as `ibv_mtu`)                  |
  /// | 6      | 2     | LID                                                            |
  /// | 8      | 1     | reads as initiator                                             |
  /// | 9      | 3     | queue pair number                                              |
  /// | 12     | 1     | reads as target                                                |
  /// | 13     | 3     | send PSN                                                       |
  /// | 16     | 16    | GID                                                            |
  /// | 32     | 4     | queue key of UD; else reserved, 0                              |
  /// | 36     | 4     | owner                                                          |
  /// | 40     | 4     | generation: 0 without an owner, else at least 1                |
  /// | 44     | 1     | offered addresses, 0 to 16                                     |
  /// | 45     | 1     | traffic class; 0 for the peer's                                |
  /// | 46     | 1     | service level, 0 to 15; 0 for the peer's                       |
  /// | 47     | 1     | the sum of 1 if the MTU was asked for, 2 if the GID was        |
  /// | 48     | 20    | the first offered address; the others follow, the rest is 0    |
  ///
  /// An offered address:
  ///
  /// | offset | bytes | field                                                          |
  /// | ------ | ----- | -------------------------------------------------------------- |
  /// | 0      | 16    | GID                                                            |
  /// | 16     | 1     | GID type: 1 RoCE v1, 2 RoCE v2                                 |
  /// | 17     | 1     | bits of its subnet's prefix, 1 to 128; 0 if unknown            |
  /// | 18     | 2     | VLAN, 1 to 4094; 0 if untagged                                 |
  [[nodiscard]] std::array<std::byte, encoded_size> encode() const noexcept;

  /// Understands format version 2, too, which is the first 44 bytes alone.
  /// \errors `invalid_input` if the bytes are not an endpoint: wrong length, a field out of range,
  /// reserved bits set, a GID or LID missing that the link layer needs, an owner without generation
  /// or the reverse; `mismatch` if they are of another format version, whatever their length
  [[nodiscard]] static result<endpoint> decode(std::span<const std::byte> bytes) noexcept;

  /// For those who read from a stream: how many bytes an endpoint has that begins with these. What
  /// is no endpoint has no more than them, and `decode` says what is wrong.
  [[nodiscard]] static std::size_t encoded_size_of(
      std::span<const std::byte, former_encoded_size> beginning) noexcept;

  friend bool operator==(const endpoint&, const endpoint&) noexcept = default;
};

std::ostream& operator<<(std::ostream& out, const endpoint& end);

/// Whether the two ends can be connected: transport, link layer, MTU, traffic class, service level,
/// and on Ethernet a pair of addresses that fit. Either end comes to the same answer.
/// \errors `mismatch` with the field and both values, or as `choose_addresses`; `invalid_input` for
/// an endpoint that nothing can be connected to
[[nodiscard]] result<void> check_compatible(const endpoint& local, const endpoint& remote) noexcept;

/// The addresses by which two ends on Ethernet meet, as `choose_addresses` picks them. Where each
/// end has a single one, and one of these was set by hand, they are taken if they are of the same
/// RoCE version and family, even if scope, subnet or VLAN speak against it.
/// \errors as `check_compatible`
[[nodiscard]] result<address_pair> choose_addresses(const endpoint& local,
                                                    const endpoint& remote) noexcept;

/// Whether `remote` is not of an earlier connection than the next one after `last`: it has another
/// owner (or none), or a generation above that of `last`, which was connected to before.
/// \errors `mismatch` with both generations
[[nodiscard]] result<void> check_newer(const endpoint& remote, const endpoint& last) noexcept;

}  // namespace verbspp
