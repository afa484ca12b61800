// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace softverbs {

/// The fields of a frame that a rule can match, in network byte order. Fields that the frame
/// doesn't have are zeros. Filters compare the fields byte by byte.
struct frame_headers {
  ibv_flow_eth_filter ethernet;
  ibv_flow_ipv4_ext_filter ipv4;
  ibv_flow_ipv6_filter ipv6;
  ibv_flow_tcp_udp_filter ports;
  ibv_flow_tunnel_filter tunnel;
  // In each of the following members, all bits are set if the frame has the tag or header;
  // otherwise, none is set.
  std::uint8_t has_vlan;
  std::uint8_t has_ipv4;
  std::uint8_t has_ipv6;
  std::uint8_t has_tcp;
  std::uint8_t has_udp;
  std::uint8_t has_vxlan;
};
static_assert(std::is_trivially_copyable_v<frame_headers>);

/// Reads the headers of a frame. Checks all lengths, because the frame's contents can't be trusted.
frame_headers read_frame(std::span<const std::byte> frame) noexcept;

/// The conditions of a rule, and its actions besides steering: to drop frames, or to tag them.
class flow_filter {
 public:
  /// Adds a condition or an action. Returns 0 or an errno value.
  int add(const ibv_flow_spec& asked) noexcept;

  bool matches(const frame_headers& frame) const noexcept;
  /// True if both filters require the same values of the same fields, so that they match the same
  /// frames.
  bool is_same(const flow_filter& other) const noexcept;

  bool drops() const noexcept { return drops_; }
  std::uint32_t tag() const noexcept { return tag_; }

 private:
  template <typename Filter>
  void ask(std::size_t offset, const Filter& value, const Filter& mask) noexcept;
  void ask_for(std::size_t offset) noexcept;

  /// The bytes of frame_headers, as an array, because an assignment of the structure might not copy
  /// padding.
  using image = std::array<std::byte, sizeof(frame_headers)>;
  image value_{};
  image mask_{};
  unsigned given_ = 0;
  bool drops_ = false;
  std::uint32_t tag_ = 0;
};

/// Returns the size of a specification of this type, or 0 if verbs.h has no such type. Sets
/// `supported`. If softverbs doesn't support the type, the result is only the size of the
/// specification's header.
std::size_t bytes_of(std::uint32_t type, bool& supported) noexcept;

}  // namespace softverbs
