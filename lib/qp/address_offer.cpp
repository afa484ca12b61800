// SPDX-License-Identifier: Apache-2.0
#include <verbspp/qp/address_offer.hpp>

#include <algorithm>
#include <compare>
#include <optional>
#include <ostream>
#include <string>

namespace verbspp {

namespace {

constexpr const char* choosing = "choose a pair of addresses";

/// The scope and family of an address, in the order of the offer.
enum class scope : std::uint8_t {
  ipv4,
  ipv6_global,
  ipv6_unique_local,  ///< fc00::/7
  ipv6_link_local,
  ipv4_link_local,  ///< 169.254.0.0/16
};

scope scope_of(const gid& address) noexcept {
  if (address.is_ipv4_mapped())
    return address.bytes[12] == 169 && address.bytes[13] == 254 ? scope::ipv4_link_local
                                                                : scope::ipv4;
  if (address.is_link_local()) return scope::ipv6_link_local;
  return (address.bytes[0] & 0xfe) == 0xfc ? scope::ipv6_unique_local : scope::ipv6_global;
}

bool is_link_local(scope of) noexcept {
  return of == scope::ipv6_link_local || of == scope::ipv4_link_local;
}

bool is_loopback(const gid& address) noexcept {
  constexpr gid ipv6_loopback{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return address == ipv6_loopback || (address.is_ipv4_mapped() && address.bytes[12] == 127);
}

bool is_roce_address(const gid_entry& entry) noexcept {
  return entry.type != gid_type::infiniband && !entry.address.is_zero() &&
         !entry.address.is_multicast();
}

/// Combines an entry with the properties of its network interface. If these properties make the
/// entry unusable, increments the count of the reason in `unusable`, and returns nothing.
std::optional<offered_address> offered_from(const gid_entry& entry,
                                            std::span<const interface_address> interfaces,
                                            unusable_addresses& unusable) noexcept {
  offered_address offered{.address = entry.address, .type = entry.type, .index = entry.index};
  const interface_address* of_interface = nullptr;
  const interface_address* same = nullptr;
  for (const interface_address& each : interfaces) {
    if (each.interface_index != entry.interface_index) continue;
    of_interface = &each;
    if (each.address == entry.address) same = &each;
  }
  if (of_interface == nullptr) {
    ++unusable.foreign;
    return std::nullopt;
  }
  if (of_interface->is_loopback) {
    ++unusable.loopback;
    return std::nullopt;
  }
  if (!of_interface->is_up) {
    ++unusable.down;
    return std::nullopt;
  }
  // A RoCE port's GID table has the link-local address that is derived from the port's MAC address,
  // even if the port's interface does not have that address.
  if (same == nullptr && scope_of(entry.address) != scope::ipv6_link_local) {
    ++unusable.stale;
    return std::nullopt;
  }
  offered.prefix_length = same != nullptr ? same->prefix_length : std::uint8_t{64};
  offered.vlan = of_interface->vlan;
  return offered;
}

/// The sort key of an address; the address with the smallest key is offered first.
auto order_of(const offered_address& offered) noexcept {
  struct order {
    scope of;
    bool is_v1;
    unsigned index;
    auto operator<=>(const order&) const noexcept = default;
  };
  return order{scope_of(offered.address), offered.type == gid_type::roce_v1, offered.index.value()};
}

bool have_subnets(const offered_address& left, const offered_address& right) noexcept {
  return left.prefix_length != offered_address::unknown_prefix &&
         right.prefix_length != offered_address::unknown_prefix;
}

bool share_subnet(const offered_address& left, const offered_address& right) noexcept {
  return share_prefix(left.address, right.address,
                      std::max(left.prefix_length, right.prefix_length));
}

/// Returns the reach of a pair of addresses. Empty if neither can reach the other.
std::optional<address_reach> reach_of(const offered_address& left,
                                      const offered_address& right) noexcept {
  const scope of = scope_of(left.address);
  if (left.type != right.type || of != scope_of(right.address)) return std::nullopt;
  const bool other_vlan = left.vlan != right.vlan && left.vlan != interface_address::untagged &&
                          right.vlan != interface_address::untagged;
  if (is_link_local(of)) {
    if (other_vlan) return std::nullopt;
    return address_reach::link_local;
  }
  const bool is_v1 = left.type == gid_type::roce_v1;
  if (!have_subnets(left, right))
    return is_v1 && other_vlan ? std::nullopt : std::optional(address_reach::routed);
  if (share_subnet(left, right) && !other_vlan) return address_reach::same_subnet;
  if (is_v1) return std::nullopt;
  return address_reach::routed;
}

/// The quality of a pair, which is the same from either end; larger is better.
struct quality {
  address_reach reach;
  bool same_vlan;
  bool is_v2;
  int places;  ///< the negative sum of the positions in both offers
  int worse;   ///< the negative of the larger position
  gid lesser;  ///< the lesser of the two addresses; the addresses break ties
  gid greater;

  auto operator<=>(const quality&) const noexcept = default;
};

quality quality_of(const offered_address& left, int left_place, const offered_address& right,
                   int right_place, address_reach reach) noexcept {
  return {.reach = reach,
          .same_vlan = reach != address_reach::routed && left.vlan == right.vlan,
          .is_v2 = left.type == gid_type::roce_v2,
          .places = -(left_place + right_place),
          .worse = -std::max(left_place, right_place),
          .lesser = std::min(left.address, right.address),
          .greater = std::max(left.address, right.address)};
}

bool has_wider_scope(const address_offer& offer) noexcept {
  return std::ranges::any_of(
      offer, [](const offered_address& each) { return !is_link_local(scope_of(each.address)); });
}

template <class Fits>
bool any_pair(const address_offer& left, const address_offer& right, Fits fits) noexcept {
  return std::ranges::any_of(left, [&](const offered_address& each) {
    return std::ranges::any_of(right,
                               [&](const offered_address& other) { return fits(each, other); });
  });
}

/// The error that is returned when no two addresses fit. It says that an end offers no address, or
/// names the first requirement that no pair of addresses meets.
error none_fit(const address_offer& local, const address_offer& remote) noexcept {
  const auto says = [](const char* hint) { return error(error_kind::mismatch, choosing, hint); };
  if (local.empty() || remote.empty())
    return says(local.empty() ? "this end offers no address" : "the peer offers no address");
  const auto same_version = [](const offered_address& left, const offered_address& right) {
    return left.type == right.type;
  };
  const auto same_family = [&](const offered_address& left, const offered_address& right) {
    return same_version(left, right) &&
           left.address.is_ipv4_mapped() == right.address.is_ipv4_mapped();
  };
  const auto same_scope = [&](const offered_address& left, const offered_address& right) {
    return same_version(left, right) && scope_of(left.address) == scope_of(right.address);
  };
  if (!any_pair(local, remote, same_version))
    return says(
        "the two ends offer no addresses of the same RoCE version (v1 or v2): enable the same "
        "version on both ports, and leave out gid_index if it is given");
  if (!any_pair(local, remote, same_family))
    return says(
        "the two ends offer no addresses of the same RoCE version and family (IPv4 or IPv6): give "
        "both ports' network interfaces addresses of the same family, and leave out gid_index if "
        "it is given");
  if (!any_pair(local, remote, same_scope))
    return says(
        "the addresses of the same RoCE version and family have no scope in common (link-local, "
        "unique local, global): give both ports' network interfaces addresses of the same scope, "
        "and leave out gid_index if it is given");
  return says(
      "the only addresses of the same kind at both ends are link-local or RoCE v1 addresses in "
      "different VLANs or subnets, and packets with such addresses are not routed: give both ends "
      "addresses in the same subnet and VLAN, or RoCE v2 addresses that are not link-local, and "
      "leave out gid_index if it is given");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const offered_address& offered) {
  out << offered.address;
  if (offered.prefix_length != offered_address::unknown_prefix)
    out << '/' << std::to_string(offered.prefix_length);
  out << " (" << to_string(offered.type);
  if (offered.vlan != interface_address::untagged) out << ", VLAN " << std::to_string(offered.vlan);
  return out << ')';
}

address_offer offer_of(std::span<const gid_entry> table,
                       std::span<const interface_address> interfaces,
                       unusable_addresses* unusable) noexcept {
  const bool has_interfaces =
      std::ranges::any_of(table, [](const gid_entry& each) { return each.interface_index != 0; });
  unusable_addresses ignored;
  unusable_addresses& counts = unusable != nullptr ? *unusable : ignored;
  // Sorted in the order of the offer. If there are too many addresses, the least preferred ones are
  // dropped.
  std::array<offered_address, address_offer::capacity> sorted;
  std::size_t size = 0;
  for (const gid_entry& entry : table) {
    if (!is_roce_address(entry)) continue;
    if (is_loopback(entry.address)) {
      ++counts.loopback;
      continue;
    }
    std::optional<offered_address> offered;
    if (!has_interfaces)
      offered = {.address = entry.address, .type = entry.type, .index = entry.index};
    else if (entry.interface_index == 0)
      ++counts.without_interface;
    else
      offered = offered_from(entry, interfaces, counts);
    if (!offered) continue;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(size);
    const auto place =
        std::ranges::upper_bound(sorted.begin(), end, order_of(*offered), {}, order_of);
    if (place == sorted.end()) continue;
    if (size < sorted.size()) ++size;
    std::move_backward(place, sorted.begin() + static_cast<std::ptrdiff_t>(size) - 1,
                       sorted.begin() + static_cast<std::ptrdiff_t>(size));
    *place = *offered;
  }
  address_offer offer;
  for (std::size_t i = 0; i < size; ++i) offer.add(sorted[i]);
  return offer;
}

const char* to_string(address_reach reach) noexcept {
  switch (reach) {
    case address_reach::link_local:
      return "link-local";
    case address_reach::routed:
      return "routed";
    case address_reach::same_subnet:
      return "same subnet";
  }
  return "unknown reach";
}

result<address_pair> choose_addresses(const address_offer& local,
                                      const address_offer& remote) noexcept {
  std::optional<quality> best;
  address_pair chosen{};
  for (std::size_t i = 0; i < local.size(); ++i)
    for (std::size_t j = 0; j < remote.size(); ++j) {
      const auto reach = reach_of(local[i], remote[j]);
      if (!reach) continue;
      const quality here =
          quality_of(local[i], static_cast<int>(i), remote[j], static_cast<int>(j), *reach);
      if (best && here <= *best) continue;
      best = here;
      chosen = {.local = local[i], .remote = remote[j], .reach = *reach};
    }
  if (!best) return none_fit(local, remote);
  chosen.is_doubtful = chosen.reach == address_reach::link_local && has_wider_scope(local) &&
                       has_wider_scope(remote);
  return chosen;
}

}  // namespace verbspp
