// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

/// What the tests of raw packets build on: frames, rules, and queue pairs that take them.

using mac = std::array<std::uint8_t, 6>;
using frame = std::vector<std::uint8_t>;

/// Of this process: all of this host's are on one Ethernet, whose other frames aren't ours.
mac own_mac(std::uint8_t which);
/// The same of a group.
mac own_group(std::uint8_t which);
/// By which queue pairs become members of that.
ibv_gid gid_of(const mac& group);

/// To and from there, of this type, with what follows.
frame frame_of(const mac& to, const mac& from, std::uint16_t type, const frame& content);
/// With a VLAN tag in it.
frame tagged(const frame& plain, std::uint16_t tag);

frame joined(frame left, const frame& right);

inline constexpr std::uint16_t ipv4_type = 0x0800;
inline constexpr std::uint16_t ipv6_type = 0x86dd;
/// For experiments on a local network: nobody else's frames have it.
inline constexpr std::uint16_t experimental_type = 0x88b5;
/// What follows the type: from 10.0.0.1 to 10.0.0.2, with options in the header.
frame ipv4(std::uint8_t protocol, const frame& content, std::uint8_t fragment = 0);
/// From fd00::1 to fd00::2.
frame ipv6(std::uint8_t next, const frame& content);
frame udp(std::uint16_t source, std::uint16_t destination);
frame tcp(std::uint16_t source, std::uint16_t destination);

/// Whether raw packets can be tested here.
bool may_send_frames();

/// Takes CAP_NET_RAW from this thread, for a while.
class without_privilege {
 public:
  without_privilege();
  without_privilege(const without_privilege&) = delete;
  without_privilege& operator=(const without_privilege&) = delete;
  ~without_privilege();
};

/// A rule, with room for what it asks for.
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
  /// Frames to there.
  rule& to(const mac& destination);
  /// Whose completions tell this.
  rule& tagging(std::uint32_t tag);
  ibv_flow_attr& attributes() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// A raw packet queue pair that is ready, with eight receives for any frame.
struct frame_end : endpoint {
  static constexpr std::uint32_t room = 8192;
  static constexpr std::uint64_t receives = 8;

  explicit frame_end(const char* device = "soft0", const endpoint* host = nullptr);
  /// RESET to RTS.
  void start();
  void post_all();
  /// Takes it away at the end.
  ibv_flow* hear(rule wanted);
  void stop_hearing();
  /// The completion is waited for.
  ibv_wc_status send_frame(const frame& bytes);
  /// The next one that a process of these tests' sent, as it has come; its receive is posted again.
  frame next();
  /// What a receive has got; that is posted again.
  frame taken(std::uint64_t id, std::uint32_t length);
  ~frame_end();

  std::vector<ibv_flow*> flows;
};

/// One whose completions of what it receives tell tags.
struct tag_reader : frame_end {
  explicit tag_reader(const char* device = "soft0");
  ~tag_reader();
  /// Of the next frame that a process of these tests' sent.
  std::uint32_t next_tag();

  ibv_cq_ex* tags = nullptr;
};
