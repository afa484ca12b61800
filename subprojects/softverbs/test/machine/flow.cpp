// SPDX-License-Identifier: Apache-2.0
// Flow rules, which select the queue pairs that receive a frame.
#include "catch.hpp"
#include "machine/flow_filter.hpp"
#include "support/frames.hpp"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <string>

namespace {

frame to_me(std::uint16_t type, const frame& content) {
  return frame_of(own_mac(2), own_mac(1), type, content);
}

template <typename Specification>
Specification full(Specification result) {
  std::memset(static_cast<void*>(&result.mask), 0xff, sizeof(result.mask));
  return result;
}

bool is_for(rule wanted, const frame& sent) {
  softverbs::flow_filter filter;
  const ibv_flow_attr& attributes = wanted.attributes();
  const auto* at = reinterpret_cast<const std::byte*>(&attributes + 1);
  for (unsigned left = attributes.num_of_specs; left > 0; --left) {
    ibv_flow_spec specification{};
    std::memcpy(static_cast<void*>(&specification), at, sizeof(specification.hdr));
    const std::size_t bytes = specification.hdr.size;
    std::memcpy(static_cast<void*>(&specification), at, bytes);
    REQUIRE(filter.add(specification) == 0);
    at += bytes;
  }
  return filter.matches(softverbs::read_frame(std::as_bytes(std::span(sent))));
}

ibv_flow_spec_ipv4 from_ipv4(const char* source) {
  ibv_flow_spec_ipv4 result{};
  result.val.src_ip = ::inet_addr(source);
  result.mask.src_ip = 0xffff'ffff;
  return result;
}

ibv_flow_spec_tcp_udp to_port(std::uint16_t port) {
  ibv_flow_spec_tcp_udp result{};
  result.val.dst_port = htobe16(port);
  result.mask.dst_port = 0xffff;
  return result;
}

/// One end that sends, and two ends that receive.
struct three_ends {
  explicit three_ends(const char* device = "soft0") : first(device), second(device) {}
  /// Returns a frame that is addressed to the multicast address own_group(7).
  static frame to_group(std::uint8_t number) {
    return frame_of(own_group(7), own_mac(1), experimental_type, {number});
  }
  static frame to(std::uint8_t whom, std::uint8_t number) {
    return frame_of(own_mac(whom), own_mac(1), experimental_type, {number});
  }
  void send(const frame& bytes) { CHECK(sender.send_frame(bytes) == IBV_WC_SUCCESS); }
  frame_end sender;
  frame_end first;
  frame_end second;
};

}  // namespace

TEST_CASE("flow: a rule matches exactly the frames that it specifies") {
  const frame plain = to_me(experimental_type, frame(60));
  const frame datagram = to_me(ipv4_type, ipv4(IPPROTO_UDP, udp(1000, 2000)));
  const frame stream = to_me(ipv6_type, ipv6(IPPROTO_TCP, tcp(1000, 2000)));

  CHECK(is_for(rule(), plain));
  CHECK(is_for(rule().to(own_mac(2)), plain));
  CHECK_FALSE(is_for(rule().to(own_mac(3)), plain));

  ibv_flow_spec_eth ethernet{};
  ethernet.val.ether_type = htobe16(experimental_type);
  ethernet.mask.ether_type = 0xffff;
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), plain));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), datagram));
  // A rule compares the first VLAN tag, and the Ethernet type after the VLAN tags, of which at most
  // two are read.
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), tagged(tagged(plain, 9), 0x2007)));
  ethernet.val.vlan_tag = htobe16(7);
  ethernet.mask.vlan_tag = htobe16(0xfff);
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), tagged(plain, 0x2007)));
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), tagged(tagged(plain, 9), 0x2007)));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), tagged(plain, 0x2008)));
  // A frame without a tag is different from a frame with tag 0.
  ethernet.val.vlan_tag = 0;
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), tagged(plain, 0x2000)));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_ETH, ethernet), plain));

  CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}), datagram));
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}), tagged(datagram, 7)));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}), stream));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}), plain));
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV4, from_ipv4("10.0.0.1")), datagram));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV4, from_ipv4("10.0.0.2")), datagram));

  ibv_flow_spec_ipv4_ext more{};
  more.val = {::inet_addr("10.0.0.1"), ::inet_addr("10.0.0.2"), IPPROTO_UDP, 0x28, 61, 0};
  more = full(more);
  more.mask.flags = 0;
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV4_EXT, more), datagram));
  for (const auto member : {&ibv_flow_ipv4_ext_filter::proto, &ibv_flow_ipv4_ext_filter::tos,
                            &ibv_flow_ipv4_ext_filter::ttl}) {
    ibv_flow_spec_ipv4_ext other = more;
    ++(other.val.*member);
    CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV4_EXT, other), datagram));
    other.mask.*member = 0;
    CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV4_EXT, other), datagram));
  }

  ibv_flow_spec_ipv6 newer{};
  newer.val.src_ip[0] = newer.val.dst_ip[0] = 0xfd;
  newer.val.src_ip[15] = 1;
  newer.val.dst_ip[15] = 2;
  newer.val.flow_label = htobe32(0x10077);
  newer.val.traffic_class = 0x28;
  newer.val.next_hdr = IPPROTO_TCP;
  newer.val.hop_limit = 61;
  newer = full(newer);
  newer.mask.flow_label = htobe32(0xfffff);
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_IPV6, newer), stream));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV6, newer), datagram));
  newer.val.flow_label = htobe32(0x10078);
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_IPV6, newer), stream));

  CHECK(is_for(rule().with(IBV_FLOW_SPEC_UDP, to_port(2000)), datagram));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_UDP, to_port(1000)), datagram));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_TCP, to_port(2000)), datagram));
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_TCP, to_port(2000)), stream));
  CHECK(is_for(rule()
                   .to(own_mac(2))
                   .with(IBV_FLOW_SPEC_IPV4, from_ipv4("10.0.0.1"))
                   .with(IBV_FLOW_SPEC_UDP, to_port(2000)),
               datagram));
  CHECK_FALSE(is_for(rule()
                         .to(own_mac(3))
                         .with(IBV_FLOW_SPEC_IPV4, from_ipv4("10.0.0.1"))
                         .with(IBV_FLOW_SPEC_UDP, to_port(2000)),
                     datagram));
  // In a later fragment, the bytes at this position are not ports, so they are not read as such.
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_UDP, to_port(2000)),
                     to_me(ipv4_type, ipv4(IPPROTO_UDP, udp(1000, 2000), 1))));

  const frame inner{0x08, 0, 0, 0, 0, 0x12, 0x34, 0};
  ibv_flow_spec_tunnel tunnel{};
  tunnel.val.tunnel_id = htobe32(0x1234);
  tunnel.mask.tunnel_id = htobe32(0xff'ffff);
  CHECK(is_for(rule().with(IBV_FLOW_SPEC_VXLAN_TUNNEL, tunnel),
               to_me(ipv4_type, ipv4(IPPROTO_UDP, joined(udp(1000, 4789), inner)))));
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_VXLAN_TUNNEL, tunnel),
                     to_me(ipv4_type, ipv4(IPPROTO_UDP, joined(udp(1000, 4790), inner)))));
  tunnel.val.tunnel_id = htobe32(0x1235);
  CHECK_FALSE(is_for(rule().with(IBV_FLOW_SPEC_VXLAN_TUNNEL, tunnel),
                     to_me(ipv4_type, ipv4(IPPROTO_UDP, joined(udp(1000, 4789), inner)))));
}

TEST_CASE("flow: a truncated frame has no headers beyond its end") {
  const frame inner{0x08, 0, 0, 0, 0, 0x12, 0x34, 0};
  const auto content = joined(udp(1000, 4789), inner);
  for (const frame& whole : {tagged(to_me(ipv4_type, ipv4(IPPROTO_UDP, content)), 7),
                             to_me(ipv6_type, ipv6(IPPROTO_UDP, content))}) {
    const rule wanted = rule().with(IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel{});
    CHECK(is_for(wanted, whole));
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      // The vector has exactly this size, so that a sanitizer detects accesses beyond it.
      const frame part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      CHECK_FALSE(is_for(wanted, part));
    }
  }
  // Frames with wrong lengths, with many tags or with random bytes must also be parsed within their
  // bounds.
  std::minstd_rand random(1);
  for (int round = 0; round < 100'000; ++round) {
    frame noise(random() % 120);
    for (std::uint8_t& each : noise) each = static_cast<std::uint8_t>(random());
    if (noise.size() > 14) {
      noise[12] = std::array<std::uint8_t, 4>{0x08, 0x86, 0x81, 0x88}[random() % 4];
      noise[13] = std::array<std::uint8_t, 4>{0x00, 0xdd, 0x00, 0xa8}[random() % 4];
      noise[14] = static_cast<std::uint8_t>(random() % 2 == 0 ? 0x40 + random() % 16 : 0x60);
    }
    softverbs::read_frame(std::as_bytes(std::span(noise)));
  }
}

TEST_CASE("flow: the rule with the lowest priority number gets the frame") {
  if (!may_send_frames()) return;
  three_ends ends;
  ends.first.hear(rule(IBV_FLOW_ATTR_NORMAL, 5).to(own_mac(2)));
  ends.first.hear(rule().to(own_mac(8)));
  ends.second.hear(rule().to(own_mac(9)));
  ends.send(ends.to(2, 1));
  CHECK(ends.first.next() == ends.to(2, 1));
  ends.second.hear(rule(IBV_FLOW_ATTR_NORMAL, 4).to(own_mac(2)));
  ends.send(ends.to(2, 2));
  ends.send(ends.to(8, 3));
  CHECK(ends.second.next() == ends.to(2, 2));
  CHECK(ends.first.next() == ends.to(8, 3));
  // If a rule has DONT_TRAP, the frame is also passed on to later rules.
  ends.second.stop_hearing();
  ends.second.hear(rule(IBV_FLOW_ATTR_NORMAL, 4, IBV_FLOW_ATTR_FLAGS_DONT_TRAP).to(own_mac(2)));
  ends.send(ends.to(2, 4));
  CHECK(ends.second.next() == ends.to(2, 4));
  CHECK(ends.first.next() == ends.to(2, 4));
  // A destroyed rule has no effect.
  ends.second.stop_hearing();
  ends.second.hear(rule().to(own_mac(9)));
  ends.send(ends.to(2, 5));
  ends.send(ends.to(9, 6));
  CHECK(ends.first.next() == ends.to(2, 5));
  CHECK(ends.second.next() == ends.to(9, 6));
}

TEST_CASE("flow: if several queue pairs have equal rules for a frame, each of them gets it") {
  if (!may_send_frames()) return;
  three_ends ends;
  ends.first.hear(rule().to(own_mac(2)));
  ends.second.hear(rule().to(own_mac(2)));
  // A queue pair gets each frame only once, even if several of its rules match.
  ends.second.hear(rule(IBV_FLOW_ATTR_SNIFFER));
  for (std::uint8_t number = 0; number < 20; ++number) {
    ends.send(ends.to(2, number));
    CHECK(ends.first.next() == ends.to(2, number));
    CHECK(ends.second.next() == ends.to(2, number));
  }
}

TEST_CASE("flow: a drop rule drops the frames that it matches") {
  if (!may_send_frames()) return;
  three_ends ends;
  ends.first.hear(rule(IBV_FLOW_ATTR_NORMAL, 1).to(own_mac(2)));
  ends.first.hear(rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  rule dropping(IBV_FLOW_ATTR_NORMAL, 0);
  ibv_flow_spec_eth other{};
  other.val.ether_type = htobe16(0x88b6);
  other.mask.ether_type = 0xffff;
  other.val.src_mac[0] = 0x02;
  std::memcpy(other.val.src_mac, own_mac(1).data(), 6);
  std::fill(std::begin(other.mask.src_mac), std::end(other.mask.src_mac), std::uint8_t{0xff});
  dropping.with(IBV_FLOW_SPEC_ETH, other)
      .with(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{});
  ends.second.hear(dropping);
  ends.send(frame_of(own_mac(2), own_mac(1), 0x88b6, {1}));
  ends.send(ends.to(2, 2));
  CHECK(ends.first.next() == ends.to(2, 2));
}

TEST_CASE("flow: default rules get frames for foreign addresses that no normal rule matches") {
  if (!may_send_frames()) return;
  three_ends ends("soft1");
  ends.first.hear(rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  ends.second.hear(rule(IBV_FLOW_ATTR_MC_DEFAULT));
  ends.sender.hear(rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  ends.send(ends.to(9, 1));
  ends.send(ends.to_group(2));
  CHECK(ends.first.next() == ends.to(9, 1));
  CHECK(ends.first.next() == ends.to_group(2));
  CHECK(ends.second.next() == ends.to_group(2));
  ends.second.hear(rule().to(own_mac(9)));
  ends.send(ends.to(9, 3));
  ends.send(ends.to(8, 4));
  CHECK(ends.second.next() == ends.to(9, 3));
  CHECK(ends.first.next() == ends.to(8, 4));
  // A queue pair receives its own frames through normal rules, but not through default rules.
  ends.sender.hear(rule().to(own_mac(7)));
  std::copy_n(ends.to(7, 5).begin(), 15, ends.sender.memory.begin() + (1 << 19));
  REQUIRE(ends.sender.send(1, {ends.sender.piece(1 << 19, 15)}, 0) == 0);
  CHECK(ends.sender.next() == ends.to(7, 5));
}

TEST_CASE("flow: a sniffer gets copies of all frames") {
  if (!may_send_frames()) return;
  three_ends ends;
  ends.first.hear(rule().to(own_mac(2)));
  ends.second.hear(rule(IBV_FLOW_ATTR_SNIFFER));
  ends.send(ends.to(2, 1));
  ends.send(ends.to(9, 2));
  CHECK(ends.first.next() == ends.to(2, 1));
  CHECK(ends.second.next() == ends.to(2, 1));
  CHECK(ends.second.next() == ends.to(9, 2));
}

TEST_CASE("flow: a completion reports the tag of its rule") {
  if (!may_send_frames()) return;
  tag_reader end;
  end.hear(rule().to(own_mac(2)).tagging(0xabcdef));
  end.hear(rule().to(own_mac(3)));
  for (const std::uint8_t whom : {2, 3}) {
    CHECK(end.send_frame(three_ends::to(whom, 1)) == IBV_WC_SUCCESS);
    CHECK(end.next_tag() == (whom == 2 ? 0xabcdefU : 0U));
  }
}

TEST_CASE("flow: a multicast group's members override the default rules of their own port only") {
  if (!may_send_frames()) return;
  frame_end sender;
  frame_end member;
  frame_end beside;
  frame_end elsewhere("soft1");
  beside.hear(rule(IBV_FLOW_ATTR_MC_DEFAULT));
  elsewhere.hear(rule(IBV_FLOW_ATTR_MC_DEFAULT));
  const ibv_gid group = gid_of(own_group(7));
  REQUIRE(ibv_attach_mcast(member.pair, &group, 0) == 0);
  CHECK(sender.send_frame(three_ends::to_group(1)) == IBV_WC_SUCCESS);
  CHECK(member.next() == three_ends::to_group(1));
  CHECK(elsewhere.next() == three_ends::to_group(1));
  CHECK(ibv_detach_mcast(member.pair, &group, 0) == 0);
  CHECK(sender.send_frame(three_ends::to_group(2)) == IBV_WC_SUCCESS);
  CHECK(elsewhere.next() == three_ends::to_group(2));
  CHECK(beside.next() == three_ends::to_group(2));
}

TEST_CASE("flow: a member of a multicast group that has a tagging rule reads the rule's tag") {
  if (!may_send_frames()) return;
  tag_reader member;
  const ibv_gid group = gid_of(own_group(7));
  REQUIRE(ibv_attach_mcast(member.pair, &group, 0) == 0);
  member.hear(rule().to(own_group(7)).tagging(77));
  CHECK(member.send_frame(three_ends::to_group(1)) == IBV_WC_SUCCESS);
  CHECK(member.next_tag() == 77);
  // The queue pair is a member of the group and also had a matching rule, but it got the frame only
  // once: the next tag belongs to another frame, which no rule matches.
  member.stop_hearing();
  CHECK(member.send_frame(three_ends::to_group(2)) == IBV_WC_SUCCESS);
  CHECK(member.next_tag() == 0);
  CHECK(ibv_detach_mcast(member.pair, &group, 0) == 0);
}

TEST_CASE("flow: invalid rules are refused") {
  if (!may_send_frames()) return;
  frame_end end;
  const auto refused = [&](int error, rule wanted) {
    CHECK(refusal([&] { return ibv_create_flow(end.pair, &wanted.attributes()); }) == error);
  };
  const auto changed = [](auto change) {
    rule result;
    change(result.attributes());
    return result;
  };
  refused(EINVAL, changed([](auto& of) { of.comp_mask = 1; }));
  refused(EINVAL, changed([](auto& of) { of.port = 0; }));
  refused(EINVAL, changed([](auto& of) { of.port = 2; }));
  refused(EINVAL, changed([](auto& of) { of.flags = 1; }));
  refused(EINVAL, changed([](auto& of) { of.flags = 8; }));
  refused(EINVAL, changed([](auto& of) { of.type = static_cast<ibv_flow_attr_type>(4); }));
  refused(EINVAL, changed([](auto& of) { of.num_of_specs = 11; }));
  refused(EOPNOTSUPP, changed([](auto& of) { of.flags = IBV_FLOW_ATTR_FLAGS_EGRESS; }));
  for (const auto type :
       {IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_SNIFFER}) {
    refused(EINVAL, rule(type, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP));
    refused(EINVAL, rule(type).to(own_mac(1)));
  }
  refused(EINVAL, rule().to(own_mac(1)).to(own_mac(2)));
  refused(EINVAL, rule().with(static_cast<ibv_flow_spec_type>(0x21), ibv_flow_spec_eth{}));
  for (const int type : {int{IBV_FLOW_SPEC_ESP}, int{IBV_FLOW_SPEC_GRE}, int{IBV_FLOW_SPEC_MPLS},
                         int{IBV_FLOW_SPEC_ACTION_HANDLE}, int{IBV_FLOW_SPEC_ACTION_COUNT},
                         IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_ETH})
    refused(EOPNOTSUPP, rule().with(static_cast<ibv_flow_spec_type>(type), ibv_flow_spec_gre{}));
  rule short_one;
  short_one.to(own_mac(1));
  reinterpret_cast<ibv_flow_spec_eth*>(&short_one.attributes() + 1)->size = 4;
  refused(EINVAL, short_one);
  ibv_flow_spec_ipv4_ext flags{};
  flags.mask.flags = 1;
  refused(EOPNOTSUPP, rule().with(IBV_FLOW_SPEC_IPV4_EXT, flags));
  ibv_flow_spec_ipv6 label{};
  label.mask.flow_label = htobe32(0x10'0000);
  refused(EINVAL, rule().with(IBV_FLOW_SPEC_IPV6, label));
  ibv_flow_spec_tunnel tunnel{};
  tunnel.mask.tunnel_id = htobe32(0x100'0000);
  refused(EINVAL, rule().with(IBV_FLOW_SPEC_VXLAN_TUNNEL, tunnel));
  ibv_flow_spec_action_tag tag{};
  tag.tag_id = 0x100'0000;
  refused(EINVAL, rule().with(IBV_FLOW_SPEC_ACTION_TAG, tag));

  rule plain;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    endpoint other(options{.type = type});
    errno = 0;
    CHECK(ibv_create_flow(other.pair, &plain.attributes()) == nullptr);
    CHECK(errno == (type == IBV_QPT_UD ? EOPNOTSUPP : EINVAL));
    rule elsewhere;
    elsewhere.attributes().port = 2;
    CHECK(refusal([&] { return ibv_create_flow(other.pair, &elsewhere.attributes()); }) == EINVAL);
  }
}

TEST_CASE("flow: a queue pair with rules can't be destroyed") {
  if (!may_send_frames()) return;
  frame_end end;
  for (const auto type : {IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT,
                          IBV_FLOW_ATTR_SNIFFER}) {
    rule wanted(type);
    if (type == IBV_FLOW_ATTR_NORMAL) wanted.to(own_mac(2));
    ibv_flow* made = ibv_create_flow(end.pair, &wanted.attributes());
    REQUIRE(made != nullptr);
    CHECK(made->context == end.context);
    CHECK(ibv_destroy_qp(end.pair) == EBUSY);
    CHECK(ibv_destroy_flow(made) == 0);
  }
  // Closing the device destroys the remaining rules.
  {
    open_context other;
    ibv_pd* domain = ibv_alloc_pd(other.verbs);
    ibv_cq* queue = ibv_create_cq(other.verbs, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr attributes = pair_with(queue, {1, 1, 1, 1, 0}, IBV_QPT_RAW_PACKET);
    ibv_qp* pair = ibv_create_qp(domain, &attributes);
    REQUIRE(pair != nullptr);
    rule wanted;
    wanted.to(own_mac(2));
    REQUIRE(ibv_create_flow(pair, &wanted.attributes()) != nullptr);
  }
  CHECK(end.send_frame(three_ends::to(2, 1)) == IBV_WC_SUCCESS);
}

TEST_CASE("flow: thousands of rules can be created and work") {
  if (!may_send_frames()) return;
  frame_end end;
  // Some benchmarks create thousands of rules to measure how fast that is.
  for (std::uint16_t port = 1; port <= 4000; ++port)
    end.hear(rule().to(own_mac(2)).with(IBV_FLOW_SPEC_UDP, to_port(port)));
  for (const std::uint16_t port : {1, 2000, 4000}) {
    const frame sent = to_me(ipv4_type, ipv4(IPPROTO_UDP, udp(9, port)));
    std::copy(sent.begin(), sent.end(), end.memory.begin() + (1 << 19));
    REQUIRE(end.send(1, {end.piece(1 << 19, static_cast<std::uint32_t>(sent.size()))}, 0) == 0);
    CHECK(end.next() == sent);
  }
}
