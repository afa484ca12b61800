// SPDX-License-Identifier: Apache-2.0
#include "device/socket_gid.hpp"
#include "device/udp_socket.hpp"
#include <verbspp/device/interface_address.hpp>
#include <verbspp/device/route.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace verbspp {

namespace {

constexpr const char* routing = "find the route to an address";
constexpr const char* searching = "find the RDMA port that leads to an address";
/// The destination port of the UDP socket; its value is irrelevant, because nothing is sent.
constexpr std::uint16_t any_port = 9;

error no_route(int errnum) noexcept {
  if (errnum == EAFNOSUPPORT)
    return {error_kind::not_found, routing,
            "this process cannot use this kind of address (IPv4 or IPv6): the kernel does not "
            "support it, or a restriction such as RestrictAddressFamilies= of systemd forbids it; "
            "use an address of the other kind"};
  if (errnum == ENETUNREACH || errnum == EHOSTUNREACH || errnum == EADDRNOTAVAIL)
    return {
        error_kind::not_found, routing,
        "the kernel has no route to this address (`ip route get`): add a route, or give this host "
        "an address in the same network"};
  return error::from_errno(errnum, routing);
}

/// The local address of a connected socket.
result<gid> local_address(int descriptor) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    return error::from_errno(errno, routing);
  const auto address = detail::gid_of(reinterpret_cast<const sockaddr*>(&storage));
  if (!address) return error(error_kind::driver, routing, "the kernel returned no IP address");
  return *address;
}

std::uint32_t interface_of(const gid& address, std::uint32_t wanted,
                           const interface_table& interfaces) noexcept {
  std::uint32_t found = wanted;
  for (const interface_address& each : interfaces)
    if (each.address == address && (wanted == 0 || each.interface_index == wanted)) {
      found = each.interface_index;
      if (each.is_up) break;
    }
  return found;
}

/// Returns the GID index of the route's source address; prefers a RoCE v2 entry. Empty if the table
/// has no RoCE entry for the address, or only entries on other interfaces.
std::optional<gid_index> index_of(const ip_route& way, const gid_table& table) noexcept {
  std::optional<gid_index> found;
  for (const gid_entry& each : table.entries()) {
    if (each.address != way.source || each.type == gid_type::infiniband) continue;
    if (each.interface_index != 0 && each.interface_index != way.interface_index) continue;
    if (!found || each.type == gid_type::roce_v2) found = each.index;
    if (each.type == gid_type::roce_v2) break;
  }
  return found;
}

/// Finds the first active Ethernet port of this device that has the route's source address; empty
/// if there is none.
result<std::optional<port_towards>> port_of(const context& opened, const ip_route& way) noexcept {
  VERBSPP_TRY(attributes, opened.query_device());
  for (unsigned number = 1; number <= attributes.phys_port_cnt; ++number) {
    VERBSPP_TRY(which, port_number::from(number));
    VERBSPP_TRY(port, opened.query_port(which));
    if (!port.is_active() || port.link_layer() != link_layer::ethernet) continue;
    VERBSPP_TRY(table, opened.query_gid_table(which));
    if (const auto index = index_of(way, table))
      return std::optional<port_towards>({.context = opened, .port = which, .gid_index = *index});
  }
  return std::optional<port_towards>();
}

}  // namespace

result<ip_route> find_route(const gid& destination, std::uint32_t interface_index) noexcept {
  constexpr gid any_ipv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
  if (destination.is_zero() || destination == any_ipv4 || destination.is_multicast())
    return error(error_kind::invalid_input, routing,
                 "this is a wildcard or multicast address: use the address of a host");
  if (destination.is_link_local() && interface_index == 0)
    return error(error_kind::invalid_input, routing,
                 "a link-local address does not determine the network interface: use another "
                 "address of the host, or call find_route with the index of the interface");
  sockaddr_storage storage{};
  const socklen_t size = detail::store_address(destination, any_port, interface_index, storage);
  const detail::udp_socket socket(storage.ss_family);
  if (socket.descriptor() < 0) return no_route(errno);
  if (::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&storage), size) != 0)
    return no_route(errno);
  VERBSPP_TRY(source, local_address(socket.descriptor()));
  VERBSPP_TRY(interfaces, interface_table::query());
  return ip_route{.source = source,
                  .interface_index = interface_of(source, interface_index, interfaces)};
}

result<port_towards> open_device_towards(const gid& destination) noexcept {
  VERBSPP_TRY(way, find_route(destination));
  VERBSPP_TRY(devices, device_list::query());
  std::optional<error> problem;
  for (const device& each : devices) {
    const auto opened = each.open();
    const auto found = opened.has_value() ? port_of(opened.assume_value(), way)
                                          : result<std::optional<port_towards>>(opened.error());
    if (found.has_value() && found.assume_value()) return *found.assume_value();
    // The failure is not returned yet, because another device may have the port.
    if (found.has_error()) problem = found.assume_error();
  }
  if (problem) return *problem;
  return error(
      error_kind::not_found, searching,
      "no active RoCE port has the address from which the kernel reaches the peer: `ip route get` "
      "shows the address and its interface, and `rdma link` shows the interfaces of the devices");
}

}  // namespace verbspp
