// SPDX-License-Identifier: Apache-2.0
#include "frame.hpp"

#include <endian.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace fuzz {
namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::size_t ethernet_bytes = 14;

void add(bytes& to, std::initializer_list<std::uint8_t> some) {
  to.insert(to.end(), some.begin(), some.end());
}

void add_transport(bytes& to, bool tcp) {
  if (tcp) {
    add(to, {0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0});
    return;
  }
  // A UDP header with the VXLAN port, 4789, and a VXLAN header with a network identifier.
  add(to, {0x10, 0, 0x12, 0xb5, 0, 24, 0, 0});
  add(to, {8, 0, 0, 0, 0, 1, 2, 0});
}

constexpr std::uint8_t protocol(bool tcp) { return tcp ? IPPROTO_TCP : IPPROTO_UDP; }

void add_ipv4(bytes& to, bool options, bool tcp) {
  const std::uint8_t first = options ? 0x46 : 0x45;
  add(to, {first, 0, 0, 60, 0, 1, 0, 0, 64, protocol(tcp), 0, 0});
  add(to, {10, 0, 0, 1, 10, 0, 0, 2});
  if (options) add(to, {1, 1, 1, 0});
}

void add_ipv6(bytes& to, bool tcp) {
  add(to, {0x60, 1, 2, 3, 0, 40, protocol(tcp), 64});
  for (std::uint8_t end = 1; end <= 2; ++end)
    add(to, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end});
}

// Each of these functions clears those bits of a mask that a flow rule cannot match.

void limit(ibv_flow_ipv4_ext_filter& mask) { mask.flags = 0; }
void limit(ibv_flow_ipv6_filter& mask) { mask.flow_label &= htobe32(0xf'ffff); }
void limit(ibv_flow_tunnel_filter& mask) { mask.tunnel_id &= htobe32(0xff'ffff); }
template <typename Filter>
void limit(Filter& /*mask*/) {}

}  // namespace

std::vector<std::uint8_t> make_frame(input& said) {
  bytes result;
  const unsigned kind = said.take<std::uint8_t>();
  const bool to_many = (kind & 1) != 0;
  const bool tcp = (kind & 2) != 0;
  const unsigned tags = kind >> 2 & 3;
  result.assign(group_of_frames.begin(), group_of_frames.end());
  if (!to_many) result[0] = 2;
  add(result, {2, 0, 0, 0, 0, 2});
  // The first VLAN tag is a service tag. The others are customer tags.
  for (unsigned tag = 0; tag < tags; ++tag)
    if (tag == 0)
      add(result, {0x88, 0xa8, 0, 7});
    else
      add(result, {0x81, 0, 0, 7});
  if ((kind & 16) != 0) {
    add(result, {0x86, 0xdd});
    add_ipv6(result, tcp);
  } else {
    add(result, {8, 0});
    add_ipv4(result, (kind & 32) != 0, tcp);
  }
  add_transport(result, tcp);
  for (unsigned changes = kind >> 6; changes > 0; --changes) {
    const std::size_t at = said.below(256);
    result[at % result.size()] = said.take<std::uint8_t>();
  }
  const std::size_t cut = said.take<std::uint8_t>();
  result.resize(std::max(ethernet_bytes, result.size() - std::min(cut, result.size())));
  return result;
}

template <typename Specification, typename Filter>
void frame_rule::ask(input& said, ibv_flow_spec_type type, Specification wanted,
                     const Filter& has) {
  wanted.type = type;
  wanted.size = sizeof(wanted);
  wanted.val = has;
  // The mask has all supported bits set, no bits set, or bits from the input. In one case, the
  // value comes from the input instead of the frame.
  const unsigned how = said.below(8);
  std::memset(&wanted.mask, how == 0 ? 0 : 0xff, sizeof(wanted.mask));
  if (how == 1 || how == 2) {
    const auto some = said.take_bytes(sizeof(Filter));
    if (!some.empty()) std::memcpy(how == 1 ? &wanted.mask : &wanted.val, some.data(), some.size());
  }
  if (how != 1) limit(wanted.mask);
  add(&wanted, sizeof(wanted));
}

void frame_rule::add(const void* specification, std::size_t size) {
  const std::size_t start = bytes_.size();
  bytes_.resize(start + size);
  std::memcpy(bytes_.data() + start, specification, size);
  ++attributes().num_of_specs;
}

frame_rule::frame_rule(input& said, std::span<const std::uint8_t> frame)
    : bytes_(sizeof(ibv_flow_attr)) {
  const softverbs::frame_headers has = softverbs::read_frame(std::as_bytes(frame));
  const unsigned what = said.take<std::uint8_t>();
  const unsigned type = what & 7;
  attributes().type =
      type <= IBV_FLOW_ATTR_SNIFFER ? static_cast<ibv_flow_attr_type>(type) : IBV_FLOW_ATTR_NORMAL;
  attributes().port = 1;
  attributes().priority = static_cast<std::uint16_t>(what >> 7);
  if (attributes().type != IBV_FLOW_ATTR_NORMAL) return;
  if ((what & 64) != 0) attributes().flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
  if ((what & asks_link) != 0) ask(said, IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{}, has.ethernet);
  if ((what & asks_internet) != 0) {
    if (has.has_ipv6 != 0)
      ask(said, IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6{}, has.ipv6);
    else
      ask(said, IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext{}, has.ipv4);
  }
  if ((what & asks_transport) != 0) ask_for_transport(said, has);
  ask_for_action(said);
}

void frame_rule::ask_for_action(input& said) {
  const unsigned what = said.below(4);
  if (what == 0) {
    const ibv_flow_spec_action_tag tag{IBV_FLOW_SPEC_ACTION_TAG, sizeof(tag),
                                       said.take<std::uint32_t>()};
    add(&tag, sizeof(tag));
  } else if (what == 1) {
    const ibv_flow_spec_action_drop drop{IBV_FLOW_SPEC_ACTION_DROP, sizeof(drop)};
    add(&drop, sizeof(drop));
  }
}

void frame_rule::ask_for_transport(input& said, const softverbs::frame_headers& has) {
  ask(said, has.has_tcp != 0 ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP, ibv_flow_spec_tcp_udp{},
      has.ports);
  if (has.has_vxlan != 0) ask(said, IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel{}, has.tunnel);
}

}  // namespace fuzz
