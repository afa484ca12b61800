// SPDX-License-Identifier: Apache-2.0
#include "machine/flow_filter.hpp"

#include "wire/packet.hpp"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace softverbs {
namespace {

constexpr std::uint16_t ethertype_ipv4 = 0x0800;
constexpr std::uint16_t ethertype_ipv6 = 0x86dd;
constexpr std::uint16_t ethertype_customer_tag = 0x8100;
constexpr std::uint16_t ethertype_service_tag = 0x88a8;
/// Reading stops after this number of VLAN tags, because a frame may consist of nothing but tags.
constexpr unsigned most_tags = 2;

constexpr std::uint16_t vxlan_port = 4789;
constexpr std::byte vxlan_has_number{0x08};

constexpr std::uint8_t all_bits = 0xff;

/// The largest values that the kernel and its drivers accept.
constexpr std::uint32_t largest_tag = (1U << 24) - 1;
constexpr std::uint32_t largest_tunnel = (1U << 24) - 1;
constexpr std::uint32_t largest_flow_label = (1U << 20) - 1;

/// Reads values at the front of a frame, and skips headers.
class header_reader {
 public:
  explicit header_reader(std::span<const std::byte> frame) noexcept : left_(frame) {}

  bool has(std::size_t bytes) const noexcept { return left_.size() >= bytes; }
  void skip(std::size_t bytes) noexcept { left_ = left_.subspan(bytes); }
  std::byte at(std::size_t place) const noexcept { return left_[place]; }
  template <typename Value>
  void copy(Value& to, std::size_t from) const noexcept {
    std::memcpy(&to, left_.data() + from, sizeof(to));
  }
  std::uint16_t number_at(std::size_t place) const noexcept {
    std::uint16_t result = 0;
    copy(result, place);
    return be16toh(result);
  }

 private:
  std::span<const std::byte> left_;
};

void read_transport(header_reader frame, std::uint8_t protocol, frame_headers& found) noexcept {
  constexpr std::size_t tcp_bytes = 20;
  constexpr std::size_t vxlan_bytes = 8;
  if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) return;
  if (!frame.has(protocol == IPPROTO_TCP ? tcp_bytes : sizeof(udphdr))) return;
  (protocol == IPPROTO_TCP ? found.has_tcp : found.has_udp) = all_bits;
  frame.copy(found.ports.src_port, 0);
  frame.copy(found.ports.dst_port, 2);
  if (protocol != IPPROTO_UDP || be16toh(found.ports.dst_port) != vxlan_port ||
      !frame.has(sizeof(udphdr) + vxlan_bytes))
    return;
  frame.skip(sizeof(udphdr));
  if ((frame.at(0) & vxlan_has_number) == std::byte{}) return;
  found.has_vxlan = all_bits;
  std::uint32_t number = 0;
  frame.copy(number, 4);
  found.tunnel.tunnel_id = htobe32(be32toh(number) >> 8);
}

void read_ipv4(header_reader frame, frame_headers& found) noexcept {
  constexpr std::size_t least = 20;
  constexpr std::uint16_t offset_mask = 0x1fff;
  if (!frame.has(least)) return;
  const auto first = std::to_integer<std::uint8_t>(frame.at(0));
  const std::size_t length = std::size_t{first & 0xfU} * 4;
  if (first >> 4 != 4 || length < least || !frame.has(length)) return;
  found.has_ipv4 = all_bits;
  frame.copy(found.ipv4.tos, 1);
  frame.copy(found.ipv4.ttl, 8);
  frame.copy(found.ipv4.proto, 9);
  frame.copy(found.ipv4.src_ip, 12);
  frame.copy(found.ipv4.dst_ip, 16);
  // Only the first fragment begins with a transport header.
  if ((frame.number_at(6) & offset_mask) != 0) return;
  frame.skip(length);
  read_transport(frame, found.ipv4.proto, found);
}

void read_ipv6(header_reader frame, frame_headers& found) noexcept {
  constexpr std::size_t length = 40;
  if (!frame.has(length)) return;
  std::uint32_t first = 0;
  frame.copy(first, 0);
  first = be32toh(first);
  if (first >> 28 != 6) return;
  found.has_ipv6 = all_bits;
  found.ipv6.flow_label = htobe32(first & largest_flow_label);
  found.ipv6.traffic_class = static_cast<std::uint8_t>(first >> 20);
  frame.copy(found.ipv6.next_hdr, 6);
  frame.copy(found.ipv6.hop_limit, 7);
  frame.copy(found.ipv6.src_ip, 8);
  frame.copy(found.ipv6.dst_ip, 24);
  frame.skip(length);
  read_transport(frame, found.ipv6.next_hdr, found);
}

}  // namespace

frame_headers read_frame(std::span<const std::byte> bytes) noexcept {
  frame_headers found{};
  header_reader frame(bytes);
  if (!frame.has(ethernet_header_bytes)) return found;
  frame.copy(found.ethernet.dst_mac, 0);
  frame.copy(found.ethernet.src_mac, 6);
  frame.skip(12);
  std::uint16_t type = frame.number_at(0);
  for (unsigned tags = 0;
       tags < most_tags && (type == ethertype_customer_tag || type == ethertype_service_tag);
       ++tags) {
    constexpr std::size_t tag_bytes = 4;
    // The type of the content follows the tag.
    if (!frame.has(tag_bytes + sizeof(type))) break;
    if (tags == 0) frame.copy(found.ethernet.vlan_tag, 2);
    found.has_vlan = all_bits;
    frame.skip(tag_bytes);
    type = frame.number_at(0);
  }
  found.ethernet.ether_type = htobe16(type);
  frame.skip(sizeof(type));
  if (type == ethertype_ipv4) read_ipv4(frame, found);
  if (type == ethertype_ipv6) read_ipv6(frame, found);
  return found;
}

template <typename Filter>
void flow_filter::ask(std::size_t offset, const Filter& value, const Filter& mask) noexcept {
  std::memcpy(mask_.data() + offset, &mask, sizeof(mask));
  std::memcpy(value_.data() + offset, &value, sizeof(value));
  for (std::size_t at = offset; at < offset + sizeof(value); ++at) value_[at] &= mask_[at];
}

void flow_filter::ask_for(std::size_t offset) noexcept {
  value_[offset] = mask_[offset] = std::byte{all_bits};
}

std::size_t bytes_of(std::uint32_t type, bool& supported) noexcept {
  supported = true;
  switch (type) {
    case IBV_FLOW_SPEC_ETH:
      return sizeof(ibv_flow_spec_eth);
    case IBV_FLOW_SPEC_IPV4:
      return sizeof(ibv_flow_spec_ipv4);
    case IBV_FLOW_SPEC_IPV4_EXT:
      return sizeof(ibv_flow_spec_ipv4_ext);
    case IBV_FLOW_SPEC_IPV6:
      return sizeof(ibv_flow_spec_ipv6);
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      return sizeof(ibv_flow_spec_tcp_udp);
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
      return sizeof(ibv_flow_spec_tunnel);
    case IBV_FLOW_SPEC_ACTION_TAG:
      return sizeof(ibv_flow_spec_action_tag);
    case IBV_FLOW_SPEC_ACTION_DROP:
      return sizeof(ibv_flow_spec_action_drop);
    default:
      break;
  }
  supported = false;
  switch (type & ~unsigned{IBV_FLOW_SPEC_INNER}) {
    case IBV_FLOW_SPEC_ETH:
    case IBV_FLOW_SPEC_IPV4:
    case IBV_FLOW_SPEC_IPV4_EXT:
    case IBV_FLOW_SPEC_IPV6:
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
    case IBV_FLOW_SPEC_ESP:
    case IBV_FLOW_SPEC_GRE:
    case IBV_FLOW_SPEC_MPLS:
    case IBV_FLOW_SPEC_ACTION_HANDLE:
    case IBV_FLOW_SPEC_ACTION_COUNT:
      return sizeof(ibv_flow_spec::hdr);
    default:
      return 0;
  }
}

int flow_filter::add(const ibv_flow_spec& asked) noexcept {
  enum layer : unsigned { link = 1, internet = 2, transport = 4, tunnel = 8, action = 16 };
  const auto first_of = [this](layer which) {
    const bool first = (given_ & which) == 0;
    given_ |= which;
    return first;
  };
  switch (asked.hdr.type) {
    case IBV_FLOW_SPEC_ETH:
      if (!first_of(link)) return EINVAL;
      ask(offsetof(frame_headers, ethernet), asked.eth.val, asked.eth.mask);
      if (asked.eth.mask.vlan_tag != 0) ask_for(offsetof(frame_headers, has_vlan));
      return 0;
    case IBV_FLOW_SPEC_IPV4:
    case IBV_FLOW_SPEC_IPV4_EXT: {
      if (!first_of(internet)) return EINVAL;
      ibv_flow_ipv4_ext_filter value{};
      ibv_flow_ipv4_ext_filter mask{};
      if (asked.hdr.type == IBV_FLOW_SPEC_IPV4_EXT) {
        value = asked.ipv4_ext.val;
        mask = asked.ipv4_ext.mask;
      } else {
        value.src_ip = asked.ipv4.val.src_ip;
        value.dst_ip = asked.ipv4.val.dst_ip;
        mask.src_ip = asked.ipv4.mask.src_ip;
        mask.dst_ip = asked.ipv4.mask.dst_ip;
      }
      if (mask.flags != 0) return EOPNOTSUPP;
      ask(offsetof(frame_headers, ipv4), value, mask);
      ask_for(offsetof(frame_headers, has_ipv4));
      return 0;
    }
    case IBV_FLOW_SPEC_IPV6:
      if (!first_of(internet) || be32toh(asked.ipv6.mask.flow_label) > largest_flow_label)
        return EINVAL;
      ask(offsetof(frame_headers, ipv6), asked.ipv6.val, asked.ipv6.mask);
      // The program may have left the padding uninitialized.
      for (std::size_t at = offsetof(frame_headers, ipv6.hop_limit) + 1;
           at < offsetof(frame_headers, ports); ++at)
        value_[at] = mask_[at] = std::byte{};
      ask_for(offsetof(frame_headers, has_ipv6));
      return 0;
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      if (!first_of(transport)) return EINVAL;
      ask(offsetof(frame_headers, ports), asked.tcp_udp.val, asked.tcp_udp.mask);
      ask_for(asked.hdr.type == IBV_FLOW_SPEC_TCP ? offsetof(frame_headers, has_tcp)
                                                  : offsetof(frame_headers, has_udp));
      return 0;
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
      if (!first_of(tunnel) || be32toh(asked.tunnel.mask.tunnel_id) > largest_tunnel) return EINVAL;
      ask(offsetof(frame_headers, tunnel), asked.tunnel.val, asked.tunnel.mask);
      ask_for(offsetof(frame_headers, has_vxlan));
      return 0;
    case IBV_FLOW_SPEC_ACTION_TAG:
      if (!first_of(action) || asked.flow_tag.tag_id > largest_tag) return EINVAL;
      tag_ = asked.flow_tag.tag_id;
      return 0;
    case IBV_FLOW_SPEC_ACTION_DROP:
      if (!first_of(action)) return EINVAL;
      drops_ = true;
      return 0;
    default:
      return EINVAL;
  }
}

bool flow_filter::matches(const frame_headers& frame) const noexcept {
  const auto* const has = reinterpret_cast<const std::byte*>(&frame);
  for (std::size_t at = 0; at < sizeof(frame); ++at)
    if ((has[at] & mask_[at]) != value_[at]) return false;
  return true;
}

bool flow_filter::is_same(const flow_filter& other) const noexcept {
  return value_ == other.value_ && mask_ == other.mask_;
}

}  // namespace softverbs
