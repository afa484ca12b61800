// SPDX-License-Identifier: Apache-2.0
#include "host.hpp"

#include <arpa/inet.h>

#include <cstddef>
#include <stdexcept>

namespace verbspp::test {

gid address_of(const std::string& text) {
  gid address;
  const std::string full = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  if (::inet_pton(AF_INET6, full.c_str(), address.bytes.data()) != 1)
    throw std::invalid_argument("not an address: " + text);
  return address;
}

host& host::has(std::uint32_t interface, const std::string& address, std::uint16_t vlan) {
  return on_interface(interface, address, vlan).in_table(interface, address);
}

host& host::on_interface(std::uint32_t interface, const std::string& address, std::uint16_t vlan) {
  const std::size_t slash = address.find('/');
  const gid parsed = address_of(address.substr(0, slash));
  const int length = std::stoi(address.substr(slash + 1)) + (parsed.is_ipv4_mapped() ? 96 : 0);
  interfaces_.push_back({.address = parsed,
                         .prefix_length = static_cast<std::uint8_t>(length),
                         .interface_index = interface,
                         .vlan = vlan});
  return *this;
}

host& host::in_table(std::uint32_t interface, const std::string& address) {
  if (versions_ != only::v2) add(interface, address, gid_type::roce_v1);
  if (versions_ != only::v1) add(interface, address, gid_type::roce_v2);
  return *this;
}

host& host::down(std::uint32_t interface) {
  for (interface_address& each : interfaces_)
    if (each.interface_index == interface) each.is_up = false;
  return *this;
}

host& host::loopback(std::uint32_t interface) {
  for (interface_address& each : interfaces_)
    if (each.interface_index == interface) each.is_loopback = true;
  return *this;
}

host& host::gap() {
  ++next_;
  return *this;
}

host& host::version(only which) {
  versions_ = which;
  return *this;
}

void host::add(std::uint32_t interface, const std::string& address, gid_type type) {
  table_.push_back({.address = address_of(address.substr(0, address.find('/'))),
                    .type = type,
                    .index = gid_index::assume(next_++),
                    .port = 1,
                    .interface_index = interface});
}

const std::vector<host_pair>& host_pairs() {
  using enum address_reach;
  using enum gid_type;
  using only = host::only;
  static const std::vector<host_pair> pairs{
      {"in one subnet, by IPv4 and RoCE v2",
       host().has(2, "fe80::1/64").has(2, "192.0.2.1/24"),
       host().has(3, "fe80::2/64").has(3, "192.0.2.2/24"),
       {.left = "192.0.2.1", .right = "192.0.2.2"}},
      {"with two networks on one port, by the common network",
       host().has(2, "10.1.0.1/16").has(2, "10.2.0.1/16"),
       host().has(2, "10.3.0.2/16").has(2, "10.2.0.2/16"),
       {.left = "10.2.0.1", .right = "10.2.0.2"}},
      {"with link-local IPv4 addresses, by global IPv6 addresses",
       host().has(2, "169.254.7.1/16").has(2, "2001:db8::1/64"),
       host().has(2, "169.254.7.2/16").has(2, "2001:db8::2/64"),
       {.left = "2001:db8::1", .right = "2001:db8::2"}},
      {"with IPv6 only, by their global addresses",
       host().has(2, "fe80::1/64").has(2, "2001:db8:0:1::1/64"),
       host().has(2, "fe80::2/64").has(2, "2001:db8:0:1::2/64"),
       {.left = "2001:db8:0:1::1", .right = "2001:db8:0:1::2"}},
      {"with IPv6 only at one end",
       host().has(2, "192.0.2.1/24").has(2, "2001:db8::1/64"),
       host().has(2, "fe80::2/64").has(2, "2001:db8::2/64"),
       {.left = "2001:db8::1", .right = "2001:db8::2"}},
      {"with link-local addresses only",
       host().has(2, "fe80::1/64"),
       host().has(2, "fe80::2/64"),
       {.left = "fe80::1", .right = "fe80::2", .reach = link_local}},
      {"without other suitable addresses, by link-local addresses, which is doubtful",
       host().has(2, "fe80::1/64").has(2, "192.0.2.1/24"),
       host().has(2, "fe80::2/64").has(2, "2001:db8::2/64"),
       {.left = "fe80::1", .right = "fe80::2", .reach = link_local, .is_doubtful = true}},
      {"with RoCE v1 only at one end",
       host().version(only::v1).has(2, "192.0.2.1/24"),
       host().has(2, "192.0.2.2/24"),
       {.left = "192.0.2.1", .right = "192.0.2.2", .type = roce_v1}},
      {"with a router between them, by RoCE v2",
       host().has(2, "10.1.0.1/24"),
       host().has(2, "10.2.0.2/24"),
       {.left = "10.1.0.1", .right = "10.2.0.2", .reach = routed}},
      {"with a router between them and RoCE v1 only at one end",
       host().has(2, "10.1.0.1/24"),
       host().version(only::v1).has(2, "10.2.0.2/24"),
       {.refusal = "in different VLANs or subnets"}},
      {"with different RoCE versions",
       host().version(only::v1).has(2, "192.0.2.1/24").has(2, "fe80::1/64"),
       host().version(only::v2).has(2, "192.0.2.2/24").has(2, "fe80::2/64"),
       {.refusal = "no addresses of the same RoCE version (v1 or v2)"}},
      {"with a container at one end, which does not offer the addresses of its host",
       // The GID table contains the addresses of all interfaces on the port, although only one of
       // them is in this network namespace.
       host().in_table(7, "192.0.2.1").in_table(9, "192.0.2.100").on_interface(9, "192.0.2.100/24"),
       host().has(2, "192.0.2.2/24"),
       {.left = "192.0.2.100", .right = "192.0.2.2"}},
      {"with entries without an interface at one end",
       host().in_table(0, "192.0.2.9").has(2, "192.0.2.1/24"),
       host().has(2, "192.0.2.2/24"),
       {.left = "192.0.2.1", .right = "192.0.2.2"}},
      {"with software devices, whose entries have no interfaces",
       host().in_table(0, "fe80::1").in_table(0, "198.18.83.1").in_table(0, "fd00::1"),
       host().in_table(0, "fe80::2").in_table(0, "198.18.83.2").in_table(0, "fd00::2"),
       {.left = "198.18.83.1", .right = "198.18.83.2", .reach = routed}},
      {"with a bond at one end, by its address",
       // Interface 2 is a slave of the bond, and has only a link-local address.
       host().in_table(2, "fe80::a").on_interface(2, "fe80::a/64").has(5, "192.0.2.1/24"),
       host().has(5, "192.0.2.2/24"),
       {.left = "192.0.2.1", .right = "192.0.2.2"}},
      {"in several VLANs, by the common VLAN",
       host().has(2, "10.0.0.1/24").has(3, "10.0.100.1/24", 100).has(4, "10.0.200.1/24", 200),
       host().has(6, "10.9.0.2/24").has(7, "10.0.200.2/24", 200),
       {.left = "10.0.200.1", .right = "10.0.200.2"}},
      {"with RoCE v1 and the same subnet in two VLANs",
       host().version(only::v1).has(3, "10.0.0.1/24", 100),
       host().version(only::v1).has(3, "10.0.0.2/24", 200),
       {.refusal = "different VLANs"}},
      {"with link-local addresses in two VLANs",
       host().has(3, "fe80::1/64", 100),
       host().has(3, "fe80::2/64", 200),
       {.refusal = "different VLANs"}},
      {"with a VLAN tagged by one host, and by a switch for the other",
       host().has(3, "10.0.0.1/24", 100),
       host().has(2, "10.0.0.2/24"),
       {.left = "10.0.0.1", .right = "10.0.0.2"}},
      {"with unique local addresses at one end, and global addresses at the other",
       host().has(2, "fd00::1/64"),
       host().has(2, "2001:db8::2/64"),
       {.refusal = "no scope in common"}},
      {"with IPv4 only at one end, and IPv6 only at the other",
       host().has(2, "192.0.2.1/24"),
       host().has(2, "2001:db8::2/64"),
       {.refusal = "(IPv4 or IPv6)"}},
      {"with a single address each, one IPv4 and one IPv6",
       host().version(only::v2).has(2, "192.0.2.1/24"),
       host().version(only::v2).has(2, "2001:db8::2/64"),
       {.refusal = "(IPv4 or IPv6)"}},
      {"with many addresses at one end that are down, loopback or stale",
       host()
           .has(2, "192.0.2.1/24")
           .has(3, "192.0.2.5/24")
           .down(3)
           .has(4, "203.0.113.1/32")
           .loopback(4)
           .in_table(2, "127.0.0.1")
           .in_table(2, "::1")
           .gap()
           .in_table(2, "192.0.2.77"),
       host().has(2, "192.0.2.2/24"),
       {.left = "192.0.2.1", .right = "192.0.2.2"}},
      {"with two network cards on one subnet, by the first address that is offered",
       // Each card has one port, but the table of a bonded or virtual port contains the addresses
       // of both cards.
       host().has(2, "192.0.2.11/24").has(3, "192.0.2.12/24"),
       host().has(2, "192.0.2.21/24").has(3, "192.0.2.22/24"),
       {.left = "192.0.2.11", .right = "192.0.2.21"}},
      {"with one subnet within another, by the smaller subnet",
       host().has(2, "10.0.0.1/8").has(2, "10.4.1.1/24"),
       host().has(2, "10.4.2.2/24").has(2, "10.4.1.2/24"),
       {.left = "10.4.1.1", .right = "10.4.1.2"}},
      {"with IPv6 privacy addresses besides permanent ones",
       host().has(2, "2001:db8::8a1:77f2/64").has(2, "2001:db8::1/64").has(2, "10.0.0.1/24"),
       host().has(2, "2001:db8:9::44:1/64").has(2, "2001:db8::2/64").has(2, "10.5.0.2/24"),
       {.left = "2001:db8::8a1:77f2", .right = "2001:db8::2"}},
  };
  return pairs;
}

}  // namespace verbspp::test
