// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Any frame must be parsed without accesses beyond its end, and a rule that
/// requires the headers of a frame must match that frame.

#include "frame.hpp"
#include "machine/flow_filter.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

using namespace softverbs;
using fuzz::require;

namespace {

/// Parses a copy that has exactly this length, so that AddressSanitizer detects accesses beyond its
/// end.
frame_headers read_exactly(std::span<const std::uint8_t> frame) {
  const auto copy = std::make_unique<std::byte[]>(frame.size());
  if (!frame.empty()) std::memcpy(copy.get(), frame.data(), frame.size());
  return read_frame({copy.get(), frame.size()});
}

bool is_consistent(const frame_headers& has) {
  const bool ip = has.has_ipv4 != 0 || has.has_ipv6 != 0;
  return (has.has_ipv4 == 0 || has.has_ipv6 == 0) && (has.has_tcp == 0 || has.has_udp == 0) &&
         (ip || (has.has_tcp == 0 && has.has_udp == 0)) && (has.has_vxlan == 0 || has.has_udp != 0);
}

/// Checks that all headers that were found in the first part of a frame are also found in the whole
/// frame.
void compare(const frame_headers& part, const frame_headers& whole) {
  require((part.has_vlan & ~whole.has_vlan) == 0 && (part.has_ipv4 & ~whole.has_ipv4) == 0 &&
          (part.has_ipv6 & ~whole.has_ipv6) == 0 && (part.has_tcp & ~whole.has_tcp) == 0 &&
          (part.has_udp & ~whole.has_udp) == 0 && (part.has_vxlan & ~whole.has_vxlan) == 0);
  require(part.has_ipv4 == 0 || std::memcmp(&part.ipv4, &whole.ipv4, sizeof(part.ipv4)) == 0);
  require((part.has_tcp == 0 && part.has_udp == 0) ||
          std::memcmp(&part.ports, &whole.ports, sizeof(part.ports)) == 0);
}

/// Converts a rule. Returns false if the rule is refused.
bool make_filter(ibv_flow_attr& asked, flow_filter& filter) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(&asked) + sizeof(asked);
  for (unsigned left = asked.num_of_specs; left > 0; --left) {
    ibv_flow_spec one{};
    std::memcpy(&one.hdr, at, sizeof(one.hdr));
    bool supported = false;
    require(bytes_of(one.hdr.type, supported) == one.hdr.size && supported);
    std::memcpy(static_cast<void*>(&one), at, one.hdr.size);
    if (filter.add(one) != 0) return false;
    at += one.hdr.size;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t length) {
  fuzz::input said(bytes, length);
  const bool raw = said.below(4) == 0;
  std::vector<std::uint8_t> frame;
  if (raw) {
    const auto rest = said.take_bytes(length);
    frame.assign(rest.begin(), rest.end());
  } else {
    frame = fuzz::make_frame(said);
  }
  const frame_headers has = read_exactly(frame);
  require(is_consistent(has));
  for (std::size_t cut = 0; cut < frame.size(); ++cut)
    compare(read_exactly(std::span(frame).first(cut)), has);

  // First tests a rule that requires the headers of the frame (the Ethernet header only if the
  // frame has a VLAN tag), and then one that the input chooses.
  const bool ip = has.has_ipv4 != 0 || has.has_ipv6 != 0;
  const bool transport = has.has_tcp != 0 || has.has_udp != 0;
  std::array<std::uint8_t, 6> all;
  all.fill(0xff);
  all[0] = static_cast<std::uint8_t>((has.has_vlan != 0 ? fuzz::frame_rule::asks_link : 0) |
                                     (ip ? fuzz::frame_rule::asks_internet : 0) |
                                     (transport ? fuzz::frame_rule::asks_transport : 0));
  fuzz::input honest(all.data(), all.size());
  flow_filter filter;
  fuzz::frame_rule own(honest, frame);
  require(make_filter(own.attributes(), filter) && filter.matches(has));
  flow_filter other;
  fuzz::frame_rule any(said, frame);
  if (make_filter(any.attributes(), other)) {
    other.matches(has);
    require(other.is_same(other));
  }
  return 0;
}
