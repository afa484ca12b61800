// SPDX-License-Identifier: Apache-2.0
// The entry points that join and leave multicast groups. No subnet manager is needed here: a queue
// pair becomes a member when it is attached.
#include "connections/calls.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace softverbs;

namespace {

constexpr std::uint32_t group_queue_pair = 0xff'ffff;
constexpr std::uint8_t group_hops = 1;

/// Returns the GID of a new group on InfiniBand, as OpenSM assigns it. Other members join the group
/// with this GID.
ibv_gid assign_group() noexcept {
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;  // transient, in the local subnet
  group.raw[2] = 0xa0;
  group.raw[3] = 0x1b;
  static_cast<void>(::getrandom(group.raw + 4, sizeof(group.raw) - 4, GRND_NONBLOCK));
  return group;
}

/// True for the GID of a group that a subnet manager has assigned.
bool is_assigned(const ip_address& address) noexcept {
  const std::uint8_t* const raw = address.ip.raw;
  return raw[0] == 0xff && (raw[1] & 0xf0) == 0x10 && raw[2] == 0xa0 && raw[3] == 0x1b;
}

/// Returns the GID of a group's IP address, as Linux does. On Ethernet, the GID is the IP address
/// itself, except that an IPv4 address gets a multicast prefix for RoCE v1. On InfiniBand,
/// a wildcard or loopback address gets a new GID, and an assigned GID stays as it is. For any other
/// address, the GID has the format of IP multicast over InfiniBand, with the connection manager's
/// signature if the port space is RDMA_PS_UDP.
ibv_gid group_of(const ip_address& address, const identifier& id) noexcept {
  const bool as_ipv4 = address.family == AF_INET;
  if (id.here()->is_ethernet()) {
    ibv_gid group = address.ip;
    if (as_ipv4 && id.here()->type == network::roce_v1) {
      group.raw[0] = 0xff;
      group.raw[1] = 0x0e;
    }
    return group;
  }
  if (address.is_any() || address.is_loopback()) return assign_group();
  if (is_assigned(address)) return address.ip;
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;  // transient, in the local subnet
  group.raw[2] = as_ipv4 ? 0x40 : 0x60;
  group.raw[3] = id.ps == RDMA_PS_UDP ? 0x01 : 0x1b;
  group.raw[4] = group.raw[5] = 0xff;
  const std::size_t kept = as_ipv4 ? 4 : 10;
  std::copy_n(address.ip.raw + sizeof(address.ip.raw) - kept, kept,
              group.raw + sizeof(group.raw) - kept);
  if (as_ipv4) group.raw[12] &= 0x0f;
  return group;
}

/// Returns the LID of a group. No subnet manager assigns LIDs here, so each process computes the
/// same LID from the GID.
std::uint16_t lid_of_group(const ibv_gid& group) noexcept {
  std::uint32_t mixed = 0;
  for (const std::uint8_t byte : group.raw) mixed = mixed * 31 + byte;
  return static_cast<std::uint16_t>(0xc000 + mixed % 0x3fff);
}

std::unique_ptr<connection_event> make_event(multicast_membership& joined, int error) {
  identifier& id = *joined.owner;
  auto event = id.make_event(
      error == 0 ? RDMA_CM_EVENT_MULTICAST_JOIN : RDMA_CM_EVENT_MULTICAST_ERROR, -error);
  event->membership = &joined;
  rdma_ud_param& told = event->param.ud;
  told.private_data = joined.context;
  told.qp_num = group_queue_pair;
  told.qkey = RDMA_UDP_QKEY;
  const place& here = *id.here();
  told.ah_attr.port_num = here.port;
  told.ah_attr.is_global = 1;
  told.ah_attr.dlid = joined.lid;
  told.ah_attr.grh.dgid = joined.group;
  told.ah_attr.grh.sgid_index = here.gid_index;
  told.ah_attr.grh.hop_limit = group_hops;
  told.ah_attr.grh.traffic_class = id.options().type_of_service;
  return event;
}

int join(identifier& id, const sockaddr* address, bool only_sends, void* context) {
  const auto asked = read_address(address);
  if (!asked) return EINVAL;
  if (!id.here() || !id.is_datagram() || id.is_removed()) return EINVAL;
  // As in the kernel, a join can do without an address only on InfiniBand, where it creates a
  // group.
  if (id.here()->is_ethernet() && asked->is_any()) return EINVAL;
  auto joined = std::make_unique<multicast_membership>();
  joined->owner = &id;
  joined->context = context;
  joined->address = *asked;
  joined->only_sends = only_sends;
  joined->group = group_of(*asked, id);
  if (!id.here()->is_ethernet()) joined->lid = lid_of_group(joined->group);
  int error = 0;
  if (id.qp != nullptr && !only_sends) {
    error = ibv_attach_mcast(id.qp, &joined->group, joined->lid);
    joined->is_attached = error == 0;
  }
  id.events().post(make_event(*joined, error));
  id.memberships.push_back(std::move(joined));
  return 0;
}

}  // namespace

SOFTVERBS_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* address, void* context) {
  SOFTVERBS_PASS_ON(rdma_join_multicast, id, address, context);
  identifier& ours = identifier::of(id);
  const int result = locked([&] { return join(ours, address, false, context); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes,
                                            void* context) {
  SOFTVERBS_PASS_ON(rdma_join_multicast_ex, id, attributes, context);
  if (attributes->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return outcome(ENOTSUP);
  if (attributes->comp_mask != (RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
      attributes->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
    return outcome(EINVAL);
  identifier& ours = identifier::of(id);
  const bool only_sends = attributes->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  const int result = locked([&] { return join(ours, attributes->addr, only_sends, context); });
  return result != 0 ? result : complete(ours);
}

SOFTVERBS_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* address) {
  SOFTVERBS_PASS_ON(rdma_leave_multicast, id, address);
  identifier& ours = identifier::of(id);
  const auto asked = read_address(address);
  if (!asked) return outcome(EINVAL);
  std::unique_ptr<multicast_membership> left;
  const int result = locked([&] {
    const auto found = std::ranges::find_if(ours.memberships, [&](const auto& each) {
      return same(each->address.ip, asked->ip) && each->address.port == asked->port;
    });
    if (found == ours.memberships.end()) return EADDRNOTAVAIL;
    left = std::move(*found);
    ours.memberships.erase(found);
    if (left->is_attached && id->qp != nullptr)
      static_cast<void>(ibv_detach_mcast(id->qp, &left->group, left->lid));
    ours.events().extract(
        [&](const connection_event& event) { return event.membership == left.get(); },
        [](const std::unique_ptr<connection_event>&) {});
    return 0;
  });
  if (left) wait_for_acknowledgements(ours, [&] { return left->acknowledged >= left->reported; });
  return result;
}
