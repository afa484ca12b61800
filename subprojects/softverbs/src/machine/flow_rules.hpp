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

/// Which frames that come to a port a queue pair gets.
struct flow_rule {
  served* pair = nullptr;
  station port = nobody_listens;
  ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL;
  /// The lower, the earlier it is asked.
  std::uint16_t priority = 0;
  /// Later rules are asked as well.
  bool goes_on = false;
  flow_filter filter;

  static constexpr station nobody_listens = 0xff;
};

/// What a program has of a rule.
struct steering_flow final : ibv_flow {
  steering_flow(ibv_context& verbs, const flow_rule& given) noexcept : ibv_flow{}, rule(given) {
    context = &verbs;
  }

  flow_rule rule;
};

/// All rules of this process. Its ports are on one Ethernet, where each frame comes to each port.
class flow_rules {
 public:
  /// Who gets a frame, and how it was marked.
  struct target {
    served* pair;
    std::uint32_t tag;
  };

  flow_rules() = default;
  flow_rules(const flow_rules&) = delete;
  flow_rules& operator=(const flow_rules&) = delete;

  /// 0 or an errno.
  int add(flow_rule& rule) noexcept;
  void remove(const flow_rule& rule) noexcept;

  bool has(const served& pair) const noexcept;
  bool empty() const noexcept { return count_ == 0; }

  /// Each queue pair comes once. `members` are those of a group that the frame is for, who have
  /// asked for it as such, at their own ports; the sender doesn't hear itself unless it has asked
  /// for just that. Who gets it for several reasons has the tag of a rule that gives one. Valid
  /// until it is called again.
  const std::vector<target>& steer(const frame_headers& frame, const std::vector<served*>& members,
                                   std::uint32_t sender);

 private:
  /// Those of a port, each kind in the order in which they are asked.
  struct port_rules {
    std::vector<flow_rule*> sniffers;
    std::vector<flow_rule*> normal;
    std::vector<flow_rule*> defaults;
    /// Whether somebody there has asked for the frame that is being steered.
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
