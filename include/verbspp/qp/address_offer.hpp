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

/// An address that peers may reach a RoCE port by, and what they have to know to tell whether.
struct offered_address {
  /// Nothing is known of the address' subnet.
  static constexpr std::uint8_t unknown_prefix = 0;

  gid address;
  gid_type type = gid_type::roce_v2;
  /// As `interface_address::prefix_length`, or `unknown_prefix`.
  std::uint8_t prefix_length = unknown_prefix;
  /// As `interface_address::vlan`.
  std::uint16_t vlan = interface_address::untagged;
  /// Its place in the port's own GID table. Means nothing to the peer.
  gid_index index{};

  /// Wherever it is in whose table.
  friend constexpr bool operator==(const offered_address& left,
                                   const offered_address& right) noexcept {
    return left.address == right.address && left.type == right.type &&
           left.prefix_length == right.prefix_length && left.vlan == right.vlan;
  }
};

std::ostream& operator<<(std::ostream& out, const offered_address& offered);

/// The addresses that a port offers to its peers, in the order in which it would like them to be
/// used.
///
/// A plain value, as it is part of an endpoint.
class address_offer {
 public:
  /// What is beyond is left out, being the least welcome.
  static constexpr std::size_t capacity = 16;

  constexpr address_offer() noexcept = default;

  /// False, and nothing happens, if it is full.
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

/// How many entries of a port's GID table are no use to any peer, by the reason.
struct unusable_addresses {
  unsigned loopback = 0;           ///< 127.0.0.0/8, ::1, and what a loopback interface has
  unsigned without_interface = 0;  ///< of no network interface, while others have one
  /// Of an interface of another network namespace, as containers see those of their host.
  unsigned foreign = 0;
  unsigned stale = 0;  ///< its interface has that address no more
  unsigned down = 0;   ///< its interface is down
};

/// What a RoCE port offers: the entries of its GID table that are of an interface that is up, in
/// this order: IPv4, global IPv6, unique local IPv6, link-local IPv6, link-local IPv4; of each RoCE
/// v2 before v1, and then by index. Where no entry names an interface (software devices), all are
/// taken, and nothing is known of their subnets.
/// \param unusable if not null, gets the counts of the others
[[nodiscard]] address_offer offer_of(std::span<const gid_entry> table,
                                     std::span<const interface_address> interfaces,
                                     unusable_addresses* unusable = nullptr) noexcept;

/// How two addresses reach each other, the worst first.
enum class address_reach : std::uint8_t {
  link_local,   ///< if nothing but switches is between the ports
  routed,       ///< by a router, or nothing is known of the subnets
  same_subnet,  ///< both say that the other is of their subnet
};

[[nodiscard]] const char* to_string(address_reach reach) noexcept;

/// The addresses that the two ends of a connection use.
struct address_pair {
  offered_address local;
  offered_address remote;
  address_reach reach;
  /// Both are link-local, though both ports have addresses of a wider scope, which do not fit each
  /// other: probably a router is between them, which carries no link-local addresses.
  bool is_doubtful = false;
};

/// Picks the pair of addresses for a connection. Both ends pick the same one: the rule is the same
/// seen from either.
///
/// The two have to have the RoCE version, the family (IPv4, IPv6) and the scope (link-local, unique
/// local, global) in common. RoCE v1 is not routed, and VLANs that differ can't be one link. Of
/// those that fit, the best: same subnet before routed before link-local; same VLAN before others;
/// v2 before v1; that whose places in both offers are the first.
/// \errors `mismatch` if none fit, saying what stands against it
[[nodiscard]] result<address_pair> choose_addresses(const address_offer& local,
                                                    const address_offer& remote) noexcept;

}  // namespace verbspp
