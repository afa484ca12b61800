// SPDX-License-Identifier: Apache-2.0
#include "wire/network_header.hpp"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>

#include <cstring>

namespace softverbs {
namespace {

constexpr std::size_t ipv4_start = sizeof(ibv_grh) - sizeof(iphdr);
constexpr std::uint8_t next_is_infiniband = 0x1b;

/// The size of the parts, besides the payload, that follow the network header and, in RoCE v2, the
/// UDP header: the base and datagram transport headers, and the invariant CRC. The header of
/// immediate data is not counted.
constexpr std::size_t transport_bytes = 12 + 8 + 4;

/// The offset of an IPv4 address in a GID.
constexpr std::size_t ipv4_in_gid = 12;

std::uint16_t checksum(iphdr header) noexcept {
  header.check = 0;
  std::array<std::uint16_t, sizeof(header) / 2> words;
  std::memcpy(words.data(), &header, sizeof(header));
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

ibv_gid mapped(std::uint32_t ipv4) noexcept {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + ipv4_in_gid, &ipv4, sizeof(ipv4));
  return gid;
}

/// Returns nothing if the bytes contain no IPv4 header.
std::optional<iphdr> find_ipv4(const network_header& bytes) noexcept {
  iphdr header;
  std::memcpy(&header, bytes.data() + ipv4_start, sizeof(header));
  // In an IPv6 header, these bytes are parts of its addresses, and could look like an IPv4 header.
  const bool fits = header.version == 4 && header.ihl == 5 && header.check == checksum(header);
  return fits ? std::optional(header) : std::nullopt;
}

}  // namespace

network_header make_header(network type, const ibv_gid& source,
                           const ibv_global_route& to) noexcept {
  network_header bytes{};
  // An IPv4 source can send to a multicast group whose address is IPv6. The header is then an IPv6
  // header, because an IPv4 header has no room for the group's address.
  if (type == network::roce_v2 && is_ipv4(source) && is_ipv4(to.dgid)) {
    iphdr header{};
    header.version = 4;
    header.ihl = sizeof(header) / 4;
    header.tos = to.traffic_class;
    header.frag_off = htobe16(IP_DF);
    header.ttl = to.hop_limit;
    header.protocol = IPPROTO_UDP;
    std::memcpy(&header.saddr, source.raw + ipv4_in_gid, sizeof(header.saddr));
    std::memcpy(&header.daddr, to.dgid.raw + ipv4_in_gid, sizeof(header.daddr));
    std::memcpy(bytes.data() + ipv4_start, &header, sizeof(header));
    return bytes;
  }
  ibv_grh header{};
  header.version_tclass_flow =
      htobe32(6U << 28 | std::uint32_t{to.traffic_class} << 20 | (to.flow_label & 0xf'ffff));
  header.next_hdr = type == network::roce_v2 ? std::uint8_t{IPPROTO_UDP} : next_is_infiniband;
  header.hop_limit = to.hop_limit;
  header.sgid = source;
  header.dgid = to.dgid;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

std::uint8_t header_type(network type, const network_header& header) noexcept {
  constexpr std::uint8_t behind_udp = 8;
  constexpr std::uint8_t ipv6 = 1;
  constexpr std::uint8_t ipv4 = 2;
  if (type != network::roce_v2) return 0;
  // An IPv4 header is in the last bytes; the first bytes are then zero.
  return behind_udp | (header.front() == std::byte{} ? ipv4 : ipv6);
}

void set_length(network_header& bytes, std::size_t payload) noexcept {
  const std::size_t behind = (payload + 3) / 4 * 4 + transport_bytes;
  if (bytes.front() == std::byte{}) {
    iphdr header;
    std::memcpy(&header, bytes.data() + ipv4_start, sizeof(header));
    header.tot_len = htobe16(static_cast<std::uint16_t>(sizeof(header) + sizeof(udphdr) + behind));
    header.check = checksum(header);
    std::memcpy(bytes.data() + ipv4_start, &header, sizeof(header));
    return;
  }
  ibv_grh header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.paylen = htobe16(static_cast<std::uint16_t>(
      behind + (header.next_hdr == next_is_infiniband ? 0 : sizeof(udphdr))));
  std::memcpy(bytes.data(), &header, sizeof(header));
}

std::optional<network_path> read_header(const ibv_grh& header) noexcept {
  network_header bytes;
  std::memcpy(bytes.data(), &header, sizeof(header));
  network_path path{};
  if (const auto ipv4 = find_ipv4(bytes)) {
    path.network = network::roce_v2;
    path.target = mapped(ipv4->daddr);
    path.back.dgid = mapped(ipv4->saddr);
    path.back.hop_limit = ipv4->ttl;
    path.back.traffic_class = ipv4->tos;
    return path;
  }
  const std::uint32_t first = be32toh(header.version_tclass_flow);
  if (first >> 28 != 6) return std::nullopt;
  if (header.next_hdr != IPPROTO_UDP && header.next_hdr != next_is_infiniband) return std::nullopt;
  path.network = header.next_hdr == IPPROTO_UDP ? network::roce_v2 : network::roce_v1;
  path.target = header.dgid;
  path.back.dgid = header.sgid;
  path.back.flow_label = first & 0xf'ffff;
  path.back.traffic_class = static_cast<std::uint8_t>(first >> 20);
  path.back.hop_limit = header.hop_limit;
  return path;
}

}  // namespace softverbs
