// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the kernel's routing table says of a peer: from which address, interface and port it is
/// reached.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>

#include <cstdint>

namespace verbspp {

/// How this host reaches an address.
struct ip_route {
  gid source;  ///< IPv4 addresses as RoCE writes them, ::ffff:a.b.c.d
  /// That of the source address, as `if_nametoindex` counts.
  std::uint32_t interface_index = 0;
};

/// Asks the kernel (a UDP socket that is connected to the address, over which nothing is sent). An
/// address of this host is reached from itself. Thread-safe.
/// \param destination an IP address; IPv4 as ::ffff:a.b.c.d
/// \param interface_index of a link-local address, the interface; 0 otherwise
/// \errors `invalid_input` for what is no address of a host, or a link-local one without its
/// interface; `not_found` if the kernel has no route to it; `resource_exhausted`
[[nodiscard]] result<ip_route> find_route(const gid& destination,
                                          std::uint32_t interface_index = 0) noexcept;

/// A port, with the address in its GID table by which a peer is reached.
struct port_towards {
  verbspp::context context;  ///< its device, opened
  port_number port;
  verbspp::gid_index gid_index;
};

/// Of the RoCE devices and ports of this host, the one by which the kernel reaches that address: so
/// that of several ports, each on a network of its own, the right one is taken.
///
///     VERBSPP_TRY(peer, socket.peer_address());
///     VERBSPP_TRY(found, open_device_towards(peer));
///     VERBSPP_TRY(domain, protection_domain::allocate(found.context));
///     VERBSPP_TRY(prepared, domain.build_channel().port(found.port).build());
///
/// The queue pair offers all addresses of the port then, and the handshake takes the pair that
/// fits. Where several devices have the address, as that of a bonded interface, the first one with
/// an active port is taken.
/// \errors as `find_route` and `device::open`; `not_found` if no active port has the address from
/// which the kernel reaches the peer: on InfiniBand no port has IP addresses
[[nodiscard]] result<port_towards> open_device_towards(const gid& destination) noexcept;

}  // namespace verbspp
