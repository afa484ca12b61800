// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/interface_address.hpp>
#include <verbspp/device/port.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

namespace verbspp {

/// An address at which peers may reach a RoCE port, and the data from which a peer determines
/// whether it can reach that address.
struct offered_address {
  /// The prefix length if the subnet of the address is unknown.
  static constexpr std::uint8_t unknown_prefix = 0;

  gid address;
  gid_type type = gid_type::roce_v2;
  /// The length of the subnet's prefix, in bits; or `unknown_prefix`.
  std::uint8_t prefix_length = unknown_prefix;
  /// The VLAN of the network interface, or `untagged`.
  std::uint16_t vlan = interface_address::untagged;
  /// The index of the address in the port's own GID table. It has no meaning for the peer.
  gid_index index{};

  /// Compares everything except the index in the GID table.
  friend constexpr bool operator==(const offered_address& left,
                                   const offered_address& right) noexcept {
    return left.address == right.address && left.type == right.type &&
           left.prefix_length == right.prefix_length && left.vlan == right.vlan;
  }
};

std::ostream& operator<<(std::ostream& out, const offered_address& offered);

/// The addresses that a port offers to its peers, in order of preference.
///
/// A plain value, which is part of an endpoint.
class address_offer {
 public:
  /// The maximum number of addresses. If a port has more, the least preferred ones are omitted.
  static constexpr std::size_t capacity = 16;

  constexpr address_offer() noexcept = default;

  /// Appends an address. Returns false, and changes nothing, if the offer is full.
  constexpr bool add(const offered_address& offered) noexcept {
    if (size_ == capacity) return false;
    addresses_[size_++] = offered;
    return true;
  }
  [[nodiscard]] constexpr const offered_address* begin() const noexcept {
    return addresses_.data();
  }
  [[nodiscard]] constexpr const offered_address* end() const noexcept {
    return addresses_.data() + size_;
  }
  [[nodiscard]] constexpr const offered_address& operator[](std::size_t at) const noexcept {
    return addresses_[at];
  }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }

  friend bool operator==(const address_offer&, const address_offer&) noexcept = default;

 private:
  std::array<offered_address, capacity> addresses_{};
  std::uint8_t size_ = 0;
};

/// The numbers of entries in a port's GID table that no peer can use, counted by reason.
struct unusable_addresses {
  unsigned loopback = 0;  ///< 127.0.0.0/8, ::1, or an address of a loopback interface
  /// The entry names no network interface, although other entries in the table do.
  unsigned without_interface = 0;
  /// The network interface has no IP address in this network namespace. In a container, this is the
  /// case for the host's entries.
  unsigned foreign = 0;
  unsigned stale = 0;  ///< the network interface does not have the address
  unsigned down = 0;   ///< the network interface is down, or has no carrier
};

/// Returns the addresses that a RoCE port offers: the entries of its GID table that peers can use
/// (see `unusable_addresses`), at most `address_offer::capacity`. Their order is IPv4, global IPv6,
/// unique local IPv6, link-local IPv6, link-local IPv4; within each of these, RoCE v2 before v1,
/// and then by index. If no entry names an interface (the default of softverbs), all addresses
/// except loopback addresses are offered, with unknown subnets.
/// \param unusable if not null, the numbers of unusable entries are added to it
[[nodiscard]] address_offer offer_of(std::span<const gid_entry> table,
                                     std::span<const interface_address> interfaces,
                                     unusable_addresses* unusable = nullptr) noexcept;

/// The ways in which two addresses can reach each other, from the worst to the best.
enum class address_reach : std::uint8_t {
  link_local,   ///< reachable only without a router between the ports
  routed,       ///< reachable through a router, or a subnet is unknown
  same_subnet,  ///< each is in the subnet of the other
};

[[nodiscard]] const char* to_string(address_reach reach) noexcept;

/// The addresses that the two ends of a connection use.
struct address_pair {
  offered_address local;
  offered_address remote;
  address_reach reach;
  /// True if both addresses are link-local, although both ports have addresses of a wider scope, of
  /// which no two fit together. In that case, there is probably a router between the ports, and
  /// routers do not forward packets between link-local addresses.
  bool is_doubtful = false;
};

/// Selects the pair of addresses for a connection. The rule is symmetric, so both ends select the
/// same pair.
///
/// The two addresses of a pair must have the same RoCE version, family (IPv4, IPv6) and scope
/// (link-local, unique local, global). RoCE v1 is not routed, and addresses that are tagged with
/// different VLANs can't be on the same link. The best of the possible pairs is selected: same
/// subnet before routed before link-local; same VLAN before different VLANs, except for routed
/// pairs; v2 before v1; then the pair whose addresses come first in the two offers.
/// \errors `mismatch` with the reason if no pair is possible
[[nodiscard]] result<address_pair> choose_addresses(const address_offer& local,
                                                    const address_offer& remote) noexcept;

}  // namespace verbspp
