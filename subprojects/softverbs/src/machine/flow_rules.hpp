// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"
#include "machine/flow_filter.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <vector>

namespace softverbs {

class served;

/// A rule that steers frames from a port to a queue pair.
struct flow_rule {
  served* pair = nullptr;
  station port = nobody_listens;
  ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL;
  /// Rules with lower values are checked first.
  std::uint16_t priority = 0;
  /// True if later rules are checked even if this one matches.
  bool goes_on = false;
  flow_filter filter;

  static constexpr station nobody_listens = 0xff;
};

/// The program's handle to a rule.
struct steering_flow final : ibv_flow {
  steering_flow(ibv_context& verbs, const flow_rule& given) noexcept : ibv_flow{}, rule(given) {
    context = &verbs;
  }

  flow_rule rule;
};

/// All flow rules of this process. The process's Ethernet ports are on one network, so each frame
/// arrives at all of them.
class flow_rules {
 public:
  /// A queue pair that receives a frame, and the tag of the frame.
  struct target {
    served* pair;
    std::uint32_t tag;
  };

  flow_rules() = default;
  flow_rules(const flow_rules&) = delete;
  flow_rules& operator=(const flow_rules&) = delete;

  /// Returns 0 or an errno value.
  int add(flow_rule& rule) noexcept;
  void remove(const flow_rule& rule) noexcept;

  bool has(const served& pair) const noexcept;
  bool empty() const noexcept { return count_ == 0; }

  /// Returns the queue pairs that receive a frame, each one once. `members` are the members of the
  /// frame's multicast group. The sender doesn't receive its own frame, except as a member or
  /// through a normal rule that matches it. If several normal rules steer the frame to the same
  /// queue pair, the first of them decides its tag, which is 0 if that rule sets none. The result
  /// is valid until the next call.
  const std::vector<target>& steer(const frame_headers& frame, const std::vector<served*>& members,
                                   std::uint32_t sender);

 private:
  /// The rules of a port. The rules of each kind are in the order in which they are checked.
  struct port_rules {
    std::vector<flow_rule*> sniffers;
    std::vector<flow_rule*> normal;
    std::vector<flow_rule*> defaults;
    /// True if the port's default rules don't apply to the current frame, because a normal rule of
    /// the port decides about it, or because a queue pair at the port is a member of the frame's
    /// multicast group.
    bool steered = false;
    std::vector<flow_rule*>& of(ibv_flow_attr_type type) noexcept;
    bool empty() const noexcept { return sniffers.empty() && normal.empty() && defaults.empty(); }
  };
  void give(served& pair, std::uint32_t tag);
  bool steer_normally(const port_rules& at, const frame_headers& frame);

  std::map<station, port_rules> ports_;
  std::size_t count_ = 0;
  std::vector<target> targets_;
};

}  // namespace softverbs
