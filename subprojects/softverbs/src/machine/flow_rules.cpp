// SPDX-License-Identifier: Apache-2.0
#include "machine/flow_rules.hpp"

#include "machine/served.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace softverbs {

std::vector<flow_rule*>& flow_rules::port_rules::of(ibv_flow_attr_type type) noexcept {
  switch (type) {
    case IBV_FLOW_ATTR_SNIFFER:
      return sniffers;
    case IBV_FLOW_ATTR_NORMAL:
      return normal;
    default:
      return defaults;
  }
}

int flow_rules::add(flow_rule& rule) noexcept try {
  if (count_ >= limits::flow_rules) return ENOMEM;
  std::vector<flow_rule*>& list = ports_[rule.port].of(rule.type);
  // The rule is inserted after the existing rules with the same priority.
  list.insert(std::ranges::upper_bound(list, rule.priority, {}, &flow_rule::priority), &rule);
  ++count_;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void flow_rules::remove(const flow_rule& rule) noexcept {
  const auto found = ports_.find(rule.port);
  if (found == ports_.end()) return;
  count_ -= std::erase(found->second.of(rule.type), &rule);
  if (found->second.empty()) ports_.erase(found);
}

bool flow_rules::has(const served& pair) const noexcept {
  const auto is_its = [&](const flow_rule* rule) { return rule->pair == &pair; };
  return std::ranges::any_of(ports_, [&](const auto& each) {
    const port_rules& at = each.second;
    return std::ranges::any_of(at.normal, is_its) || std::ranges::any_of(at.defaults, is_its) ||
           std::ranges::any_of(at.sniffers, is_its);
  });
}

void flow_rules::give(served& pair, std::uint32_t tag) {
  if (std::ranges::find(targets_, &pair, &target::pair) == targets_.end())
    targets_.push_back({&pair, tag});
}

bool flow_rules::steer_normally(const port_rules& at, const frame_headers& frame) {
  const flow_rule* decides = nullptr;
  for (const flow_rule* rule : at.normal) {
    if (decides != nullptr && rule->priority != decides->priority) break;
    // If several rules of the same priority have equal filters, the queue pairs of all these rules
    // receive the frame, as with network cards.
    if (decides == nullptr ? !rule->filter.matches(frame) : !rule->filter.is_same(decides->filter))
      continue;
    if (!rule->filter.drops()) give(*rule->pair, rule->filter.tag());
    if (!rule->goes_on) decides = rule;
  }
  return decides != nullptr;
}

const std::vector<flow_rules::target>& flow_rules::steer(const frame_headers& frame,
                                                         const std::vector<served*>& members,
                                                         std::uint32_t sender) {
  const bool to_many = (frame.ethernet.dst_mac[0] & 1) != 0;
  targets_.clear();
  // A queue pair keeps the first tag that it gets, so the rules that may set a tag come first.
  for (auto& [port, at] : ports_) at.steered = steer_normally(at, frame);
  for (served* member : members) {
    give(*member, 0);
    if (const auto found = ports_.find(member->station_here()); found != ports_.end())
      found->second.steered = true;
  }
  for (const auto& [port, at] : ports_) {
    const auto give_others = [&](const flow_rule& rule) {
      if (rule.pair->number() != sender) give(*rule.pair, 0);
    };
    for (const flow_rule* rule : at.sniffers) give_others(*rule);
    for (const flow_rule* rule : at.defaults)
      if (!at.steered && (to_many || rule->type == IBV_FLOW_ATTR_ALL_DEFAULT)) give_others(*rule);
  }
  return targets_;
}

}  // namespace softverbs
