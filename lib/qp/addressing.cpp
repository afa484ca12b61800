// SPDX-License-Identifier: Apache-2.0
#include "qp/addressing.hpp"

#include <verbspp/device/interface_address.hpp>

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <span>
#include <utility>

namespace verbspp::detail {

namespace {

/// Returns the network interfaces of this network namespace, to which GIDs may belong. Empty if no
/// given GID names an interface.
result<std::optional<interface_table>> interfaces_for(std::span<const gid_entry> gids) noexcept {
  const auto names_one = [](const gid_entry& each) { return each.interface_index != 0; };
  if (std::ranges::none_of(gids, names_one)) return std::optional<interface_table>();
  VERBSPP_TRY(asked, interface_table::query());
  return std::optional(std::move(asked));
}

std::span<const interface_address> entries_of(
    const std::optional<interface_table>& interfaces) noexcept {
  if (!interfaces) return {};
  return {interfaces->begin(), interfaces->size()};
}

/// The error for a port without a usable address. If the port has entries, the error names the most
/// frequent reason why they are unusable.
error no_address(const unusable_addresses& unusable, const char* operation) noexcept {
  struct reason {
    unsigned count;
    const char* hint;
  };
  const std::array<reason, 5> reasons{{
      {unusable.foreign,
       "no GID of the port is usable: at least one belongs to a network interface that has no IP "
       "address in this process's network namespace (container): give an interface of the port an "
       "IP address there"},
      {unusable.down,
       "no GID of the port is usable: at least one belongs to a network interface that is down or "
       "has no carrier: bring it up (ip link set ... up), and check its cable"},
      {unusable.stale,
       "no GID of the port is usable: at least one is not (or no longer) an address of its network "
       "interface in this process's network namespace: give an interface of the port an IP address "
       "there"},
      {unusable.without_interface,
       "no GID of the port is usable: at least one belongs to no network interface: bring the "
       "port's network interface up (`rdma link` shows it), and give it an IP address"},
      {unusable.loopback,
       "no GID of the port is usable: at least one is a loopback address, or belongs to a loopback "
       "interface: give the port's network interface another IP address, or use a device on "
       "another interface"},
  }};
  const reason& worst = *std::ranges::max_element(reasons, {}, &reason::count);
  return {
      error_kind::not_found, operation,
      worst.count != 0
          ? worst.hint
          : "the port has no RoCE GID (iWARP ports never have one), and on Ethernet a queue pair "
            "is addressed by GID: bring the port's network interface up (`rdma link` shows it), "
            "and give it an IP address"};
}

port_addresses addresses_from(const gid_entry& entry, const address_offer& offer) noexcept {
  return {.address = entry.address, .type = entry.type, .index = entry.index, .offer = offer};
}

}  // namespace

result<port_addresses> addresses_of(const context& context, const port_attributes& port,
                                    const std::optional<gid_index>& picked,
                                    const char* operation) noexcept {
  // The first GID of an InfiniBand port is derived from its GUID.
  if (port.link_layer() == link_layer::infiniband) {
    VERBSPP_TRY(entry, context.query_gid(port.number(), picked.value_or(gid_index{})));
    return addresses_from(entry, {});
  }
  if (picked) {
    VERBSPP_TRY(entry, context.query_gid(port.number(), *picked));
    const auto interfaces = interfaces_for({&entry, 1});
    address_offer offer;
    if (interfaces.has_value())
      offer = offer_of({&entry, 1}, entries_of(interfaces.assume_value()));
    // The address was selected by hand, so it is offered even if it seems unusable, or if the
    // kernel does not report the interfaces.
    if (offer.empty())
      offer.add({.address = entry.address, .type = entry.type, .index = entry.index});
    return addresses_from(entry, offer);
  }
  VERBSPP_TRY(table, context.query_gid_table(port.number()));
  VERBSPP_TRY(interfaces, interfaces_for(table.entries()));
  unusable_addresses unusable;
  const address_offer offer = offer_of(table.entries(), entries_of(interfaces), &unusable);
  if (offer.empty()) return no_address(unusable, operation);
  const offered_address& first = offer[0];
  return port_addresses{
      .address = first.address, .type = first.type, .index = first.index, .offer = offer};
}

std::uint32_t random_number() noexcept {
  std::uint32_t bits = 0;
  // Before the kernel's generator is seeded, the clock is the best source.
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    bits = static_cast<std::uint32_t>(now.tv_nsec);
  }
  return bits;
}

packet_sequence_number random_psn() noexcept {
  return packet_sequence_number::assume(random_number() & packet_sequence_number::maximum);
}

}  // namespace verbspp::detail
