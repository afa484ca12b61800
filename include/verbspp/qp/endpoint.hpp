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

/// The data that a peer needs to connect to a queue pair (on UD, to send to it), or to explain why
/// it cannot.
///
/// A plain value. The caller encodes it with `encode`, and sends it to the peer by any means.
struct endpoint {
  static constexpr std::size_t encoded_size = 368;
  /// The size in format version 2. In both versions, the length can be determined from the first 44
  /// bytes.
  static constexpr std::size_t former_encoded_size = 44;

  transport type = transport::rc;
  queue_pair_number number{};
  verbspp::link_layer link_layer = verbspp::link_layer::infiniband;
  verbspp::lid lid{};  ///< not used on Ethernet
  /// On Ethernet, the address in use: the first one of `addresses`, until the handshake has
  /// selected one of them. If `addresses` does not contain it, which is the case in format version
  /// 2, it is the only address, and is treated as if it had been set by hand.
  gid address{};
  verbspp::gid_type gid_type = verbspp::gid_type::infiniband;
  /// True if the GID index was set by hand. In that case, if each end has only one address, the two
  /// are used even if their scope, subnet or VLAN differ.
  bool is_address_set_by_hand = false;
  /// The largest path MTU that this end accepts: the port's active MTU, or a smaller one if that
  /// was requested.
  path_mtu mtu{};
  /// True if the MTU was requested, so that this end accepts no smaller one.
  bool is_mtu_asked_for = false;
  /// The traffic class of this end's packets; 0 means to adopt the peer's. Ends with different
  /// traffic classes do not connect, because packets and their acknowledgements would then get
  /// different qualities of service.
  verbspp::traffic_class traffic_class{};
  /// The service level of this end's packets; 0 means to adopt the peer's. Ends with different
  /// service levels do not connect.
  verbspp::service_level service_level{};
  packet_sequence_number send_psn{};
  /// The maximum number of reads and atomics that this end wants to have outstanding at the peer.
  read_depth reads_as_initiator{};
  /// The maximum number of reads and atomics that this end can process at the same time.
  read_depth reads_as_target{};
  queue_key qkey{};  ///< on UD, the key that datagrams must carry; otherwise 0
  /// A random number that identifies the channel at this end. It stays the same when the channel is
  /// renewed; 0 for a plain queue pair.
  std::uint32_t owner{};
  /// The number of the connection, counted from 1 for each owner; 0 for a plain queue pair.
  /// `check_newer` detects an endpoint from an earlier connection.
  std::uint32_t generation{};
  /// On Ethernet, the addresses at which this end can be reached. The handshake selects the pair of
  /// addresses that fits best. If the GID index was set by hand, its address is the only one. Empty
  /// on InfiniBand.
  address_offer addresses{};

  /// Encodes the endpoint as 368 bytes, for `decode` on any machine, with big-endian numbers:
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
  /// | 32     | 4     | queue key of UD; otherwise reserved, 0                         |
  /// | 36     | 4     | owner                                                          |
  /// | 40     | 4     | generation: 0 without an owner, otherwise at least 1           |
  /// | 44     | 1     | offered addresses, 0 to 16                                     |
  /// | 45     | 1     | traffic class; 0 to adopt the peer's                           |
  /// | 46     | 1     | service level, 0 to 15; 0 to adopt the peer's                  |
  /// | 47     | 1     | 1 if the MTU was requested, plus 2 if the GID index was set    |
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

  /// Decodes an endpoint. Format version 2, which has only the first 44 bytes, is accepted, too.
  /// \errors `invalid_input` if the bytes are not an endpoint: wrong length, a field out of range,
  /// reserved bits set, a missing GID or LID that the link layer needs, an owner without a
  /// generation, or a generation without an owner; `mismatch` if they have another format version,
  /// whatever their length
  [[nodiscard]] static result<endpoint> decode(std::span<const std::byte> bytes) noexcept;

  /// For programs that read endpoints from a stream: returns the encoded size of the endpoint that
  /// begins with these bytes. If no endpoint begins with them, returns 44, so that the caller
  /// passes just these bytes to `decode`, which reports the error.
  [[nodiscard]] static std::size_t encoded_size_of(
      std::span<const std::byte, former_encoded_size> beginning) noexcept;

  friend bool operator==(const endpoint&, const endpoint&) noexcept = default;
};

std::ostream& operator<<(std::ostream& out, const endpoint& end);

/// Checks that the two ends can be connected: that their transports, link layers, MTUs, traffic
/// classes and service levels match, and, on Ethernet, that they have a pair of addresses that fit
/// together. The comparison is symmetric.
/// \errors `mismatch` with the field and both values, or as reported by `choose_addresses`;
/// `invalid_input` if no queue pair can be connected to `remote`, or `local` is empty
[[nodiscard]] result<void> check_compatible(const endpoint& local, const endpoint& remote) noexcept;

/// Selects the addresses for a connection between two ends on Ethernet, by the same rules as for
/// two offers (see `address_offer.hpp`). There is one exception: if each end has a single address,
/// and one of the two was set by hand, both are used if they have the same RoCE version and family,
/// even if scope, subnet or VLAN differ.
/// \errors `mismatch`
[[nodiscard]] result<address_pair> choose_addresses(const endpoint& local,
                                                    const endpoint& remote) noexcept;

/// Checks that `remote` is newer than `last`, the endpoint of an earlier connection to the same
/// peer: it must have another owner or none, or a higher generation.
/// \errors `mismatch` with both generations
[[nodiscard]] result<void> check_newer(const endpoint& remote, const endpoint& last) noexcept;

}  // namespace verbspp
