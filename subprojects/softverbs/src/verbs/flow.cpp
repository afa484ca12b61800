// SPDX-License-Identifier: Apache-2.0
// The entry points for flow rules, which steer frames.
#include "base/capability.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "verbs/device_context.hpp"
#include "verbs/inline_calls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// The maximum number of specifications that the kernel accepts.
constexpr unsigned most_specifications = 10;

/// Reads the specifications that follow the attributes. Returns 0 or an errno value. As in
/// libibverbs, the size of the attributes is ignored.
int read_specifications(const ibv_flow_attr& attributes, flow_filter& filter) noexcept {
  const auto* at = reinterpret_cast<const std::byte*>(&attributes + 1);
  for (unsigned left = attributes.num_of_specs; left > 0; --left) {
    // A specification need not be aligned, so its header is copied before it is read.
    struct {
      std::uint32_t type;
      std::uint16_t size;
    } header{};
    static_assert(sizeof(header) == sizeof(ibv_flow_spec::hdr));
    std::memcpy(&header, at, sizeof(header));
    bool supported = false;
    const std::size_t bytes = bytes_of(header.type, supported);
    if (bytes == 0) return EINVAL;
    if (!supported) return EOPNOTSUPP;
    if (header.size != bytes) return EINVAL;
    ibv_flow_spec asked{};
    std::memcpy(static_cast<void*>(&asked), at, bytes);
    if (const int error = filter.add(asked)) return error;
    at += bytes;
  }
  return 0;
}

/// Checks the attributes, and sets the rule. Returns 0 or an errno value.
int check_rule(const ibv_qp* pair, const ibv_flow_attr& attributes, flow_rule& rule) noexcept {
  constexpr std::uint32_t known = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
  const soft_device& device = *soft_device_of(pair->context);
  std::uint32_t type = 0;
  std::memcpy(&type, &attributes.type, sizeof(type));
  const bool normal = type == IBV_FLOW_ATTR_NORMAL;
  if (attributes.comp_mask != 0) return EINVAL;
  if (!may_send_raw()) return EPERM;
  if ((attributes.flags & ~known) != 0 || attributes.num_of_specs > most_specifications)
    return EINVAL;
  if ((attributes.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0 && !normal) return EINVAL;
  if (!device.has_port(attributes.port)) return EINVAL;
  if (pair->qp_type == IBV_QPT_UD) return EOPNOTSUPP;
  if (pair->qp_type != IBV_QPT_RAW_PACKET) return EINVAL;
  if (type > IBV_FLOW_ATTR_SNIFFER) return EINVAL;
  if (!device.is_ethernet(attributes.port)) return EINVAL;
  if ((attributes.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0) return EOPNOTSUPP;
  if (!normal && attributes.num_of_specs != 0) return EINVAL;
  rule.port = station_of(device.number, attributes.port);
  rule.type = attributes.type;
  rule.priority = attributes.priority;
  rule.goes_on = (attributes.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0;
  return read_specifications(attributes, rule.filter);
}

}  // namespace

ibv_flow* inline_calls::create_flow(ibv_qp* pair, ibv_flow_attr* attributes) {
  SOFTVERBS_FAULT(ibv_create_flow, pair->context);
  device_context& device = device_context::of(pair->context);
  flow_rule rule;
  int error = device.usable() ? check_rule(pair, *attributes, rule) : EIO;
  if (error == 0) try {
      rule.pair = static_cast<queue_pair*>(pair);
      auto created = std::make_unique<steering_flow>(*pair->context, rule);
      const std::lock_guard held(device.engine().lock());
      device.flows.insert(created.get());
      error = device.engine().add(created->rule);
      if (error == 0) return created.release();
      device.flows.erase(created.get());
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  errno = error;
  return nullptr;
}

int inline_calls::destroy_flow(ibv_flow* flow) {
  SOFTVERBS_FAULT(ibv_destroy_flow, flow->context);
  device_context& device = device_context::of(flow->context);
  if (!device.usable()) return EIO;
  auto* const ours = static_cast<steering_flow*>(flow);
  const std::lock_guard held(device.engine().lock());
  if (device.flows.erase(ours) == 0) return EINVAL;
  device.engine().remove(ours->rule);
  delete ours;
  return 0;
}
