// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lookups in the kernel's routing table, which find the local address, interface and port from
/// which a peer can be reached.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>

#include <cstdint>

namespace verbspp {

/// The route from this host to an address.
struct ip_route {
  gid source;  ///< IPv4 addresses have RoCE's form ::ffff:a.b.c.d
  /// The interface of the source address, as returned by `if_nametoindex`.
  std::uint32_t interface_index = 0;
};

/// Finds the route by connecting a UDP socket to the address, which does not send any packet. If
/// the address belongs to this host, the source is usually the same address. Thread-safe.
/// \param destination an IP address; IPv4 as ::ffff:a.b.c.d
/// \param interface_index the interface of a link-local address; otherwise 0
/// \errors `invalid_input` if `destination` is a wildcard or multicast address, or a link-local
/// address without an interface; `not_found` if the kernel has no route to it;
/// `resource_exhausted`; otherwise the errno of the failed system call
[[nodiscard]] result<ip_route> find_route(const gid& destination,
                                          std::uint32_t interface_index = 0) noexcept;

/// A port through which a peer can be reached, and the index of the source address in the port's
/// GID table.
struct port_towards {
  verbspp::context context;  ///< the port's device, opened
  port_number port;
  verbspp::gid_index gid_index;
};

/// Finds the RoCE port through which the kernel would send to this address, and opens the port's
/// device. On a host with ports in several networks, this function selects the port that leads to
/// the peer.
///
///     VERBSPP_TRY(peer, socket.peer_address());
///     VERBSPP_TRY(found, open_device_towards(peer));
///     VERBSPP_TRY(domain, protection_domain::allocate(found.context));
///     VERBSPP_TRY(prepared, domain.build_channel().port(found.port).build());
///
/// The queue pair then offers the usable addresses of the port, and the handshake selects the two
/// addresses that fit together. If several devices have the address, as with a bonded interface,
/// the first one with an active port is selected.
/// \errors those of `find_route`, `device_list::query`, `device::open` and the queries of
/// `context`; `not_found` if no active RoCE port has the address from which the kernel reaches the
/// peer
[[nodiscard]] result<port_towards> open_device_towards(const gid& destination) noexcept;

}  // namespace verbspp
