// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

/// Code that the tests of raw packets share: frames, rules, and queue pairs that receive frames.

using mac = std::array<std::uint8_t, 6>;
using frame = std::vector<std::uint8_t>;

/// Returns a MAC address that belongs to this process. All processes on the host share one
/// Ethernet, which carries other frames as well.
mac own_mac(std::uint8_t which);
/// Returns a multicast address of this process.
mac own_group(std::uint8_t which);
/// Returns the GID with which queue pairs join the group.
ibv_gid gid_of(const mac& group);

/// Returns a frame with the given addresses, type and content.
frame frame_of(const mac& to, const mac& from, std::uint16_t type, const frame& content);
/// Returns a copy of the frame into which a VLAN tag is inserted.
frame tagged(const frame& plain, std::uint16_t tag);

frame joined(frame left, const frame& right);

inline constexpr std::uint16_t ipv4_type = 0x0800;
inline constexpr std::uint16_t ipv6_type = 0x86dd;
/// An Ethernet type that is reserved for local experiments, so other software should not use it.
inline constexpr std::uint16_t experimental_type = 0x88b5;
/// Returns an IPv4 packet whose header has options. It is sent from 10.0.0.1 to 10.0.0.2.
frame ipv4(std::uint8_t protocol, const frame& content, std::uint8_t fragment = 0);
/// Returns an IPv6 packet from fd00::1 to fd00::2.
frame ipv6(std::uint8_t next, const frame& content);
frame udp(std::uint16_t source, std::uint16_t destination);
frame tcp(std::uint16_t source, std::uint16_t destination);

/// Returns true if this process may create raw packet queue pairs.
bool may_send_frames();

/// While an object of this class exists, this thread lacks CAP_NET_RAW.
class without_privilege {
 public:
  without_privilege();
  without_privilege(const without_privilege&) = delete;
  without_privilege& operator=(const without_privilege&) = delete;
  ~without_privilege();
};

/// A flow rule with its specifications.
class rule {
 public:
  explicit rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, std::uint16_t priority = 0,
                std::uint32_t flags = 0);
  template <typename Specification>
  rule& with(ibv_flow_spec_type type, Specification wanted) {
    wanted.type = type;
    wanted.size = sizeof(wanted);
    const std::size_t start = bytes_.size();
    bytes_.resize(start + sizeof(wanted));
    std::memcpy(bytes_.data() + start, &wanted, sizeof(wanted));
    ++attributes().num_of_specs;
    return *this;
  }
  /// Restricts the rule to frames with this destination.
  rule& to(const mac& destination);
  /// Adds a tag, which completions report.
  rule& tagging(std::uint32_t tag);
  ibv_flow_attr& attributes() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// A raw packet queue pair in RTS, with eight receives for frames of any size.
struct frame_end : endpoint {
  static constexpr std::uint32_t room = 8192;
  static constexpr std::uint64_t receives = 8;

  explicit frame_end(const char* device = "soft0", const endpoint* host = nullptr);
  /// Moves the queue pair from RESET to RTS, and posts its receives.
  void start();
  void post_all();
  /// Creates a rule, which `stop_hearing` or the destructor destroys.
  ibv_flow* hear(rule wanted);
  void stop_hearing();
  /// Sends a frame, and waits until the send has completed.
  ibv_wc_status send_frame(const frame& bytes);
  /// Waits for the next frame whose source address belongs to this process. Returns the frame, and
  /// posts its receive again.
  frame next();
  /// Returns the frame that arrived in this receive, and posts the receive again.
  frame taken(std::uint64_t id, std::uint32_t length);
  ~frame_end();

  std::vector<ibv_flow*> flows;
};

/// An endpoint whose receive completions report the tags that rules have added.
struct tag_reader : frame_end {
  explicit tag_reader(const char* device = "soft0");
  ~tag_reader();
  /// Waits for the next frame whose source address belongs to this process, and returns the tag of
  /// that frame.
  std::uint32_t next_tag();

  ibv_cq_ex* tags = nullptr;
};
