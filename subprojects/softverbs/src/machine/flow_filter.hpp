// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace softverbs {

/// What a rule may ask of a frame: as it stands there, in network byte order, and zeros for what it
/// hasn't. Bytes throughout, so that two can be compared as such.
struct frame_headers {
  ibv_flow_eth_filter ethernet;
  ibv_flow_ipv4_ext_filter ipv4;
  ibv_flow_ipv6_filter ipv6;
  ibv_flow_tcp_udp_filter ports;
  ibv_flow_tunnel_filter tunnel;
  // All bits set in what the frame has.
  std::uint8_t has_vlan;
  std::uint8_t has_ipv4;
  std::uint8_t has_ipv6;
  std::uint8_t has_tcp;
  std::uint8_t has_udp;
  std::uint8_t has_vxlan;
};
static_assert(std::is_trivially_copyable_v<frame_headers>);

/// Of a whole frame, which anybody may have made up.
frame_headers read_frame(std::span<const std::byte> frame) noexcept;

/// Which frames a rule is for, and what it does besides steering them.
class flow_filter {
 public:
  /// One more thing that is asked for; 0 or an errno.
  int add(const ibv_flow_spec& asked) noexcept;

  bool matches(const frame_headers& frame) const noexcept;
  /// Whether it is for the very same frames.
  bool is_same(const flow_filter& other) const noexcept;

  bool drops() const noexcept { return drops_; }
  std::uint32_t tag() const noexcept { return tag_; }

 private:
  template <typename Filter>
  void ask(std::size_t offset, const Filter& value, const Filter& mask) noexcept;
  void ask_for(std::size_t offset) noexcept;

  /// Of frame_headers. No structures, whose padding nobody copies.
  using image = std::array<std::byte, sizeof(frame_headers)>;
  image value_{};
  image mask_{};
  unsigned given_ = 0;
  bool drops_ = false;
  std::uint32_t tag_ = 0;
};

/// The bytes of such a specification; 0 if verbs.h knows none of this type. `supported` tells
/// whether it is served.
std::size_t bytes_of(std::uint32_t type, bool& supported) noexcept;

}  // namespace softverbs
