// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace softverbs {
namespace {

constexpr std::uint16_t first_lid = 16;
constexpr std::uint16_t subnet_manager_lid = 1;
constexpr unsigned ethernet_gids = 6;

/// The vendor ID, which is also the first half of the MAC addresses. It is locally administered, so
/// no manufacturer uses it, and no program mistakes a soft device for a real one.
constexpr std::uint32_t vendor = 0x02'5356;
constexpr std::uint32_t vendor_part = 1;

struct device_table {
  std::array<soft_device, max_devices> devices;

  device_table() noexcept {
    std::memset(static_cast<void*>(devices.data()), 0, sizeof(devices));
    for (unsigned number = 0; number < max_devices; ++number) {
      soft_device& device = devices[number];
      device.number = static_cast<std::uint8_t>(number);
      device.verbs.node_type = IBV_NODE_CA;
      device.verbs.transport_type = IBV_TRANSPORT_IB;
      std::snprintf(device.verbs.name, sizeof(device.verbs.name), "soft%u", number);
      std::snprintf(device.verbs.dev_name, sizeof(device.verbs.dev_name), "softverbs%u", number);
      std::snprintf(device.verbs.dev_path, sizeof(device.verbs.dev_path),
                    "/sys/class/infiniband_verbs/softverbs%u", number);
      std::snprintf(device.verbs.ibdev_path, sizeof(device.verbs.ibdev_path),
                    "/sys/class/infiniband/soft%u", number);
    }
  }
};

device_table& table() noexcept {
  static device_table result;
  return result;
}

ibv_gid link_local_gid(std::uint64_t guid) noexcept {
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(0xfe80'0000'0000'0000U);
  gid.global.interface_id = htobe64(guid);
  return gid;
}

}  // namespace

// 198.18.0.0/15 is reserved for tests of network equipment, so ordinary hosts don't have these
// addresses.
ibv_gid ipv4_gid(unsigned number, unsigned port) noexcept {
  ibv_gid gid{};
  gid.global.interface_id = htobe64(0x0000'ffff'c612'5300U + (port - 1) * 256 + number + 1);
  return gid;
}

ibv_gid unique_local_gid(unsigned number, unsigned port) noexcept {
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(0xfd73'6f66'7476'0000U);
  gid.global.interface_id = htobe64((port - 1) * std::uint64_t{256} + number + 1);
  return gid;
}

bool is_ipv4(const ibv_gid& gid) noexcept {
  return gid.global.subnet_prefix == 0 && be64toh(gid.global.interface_id) >> 32 == 0x0000'ffffU;
}

bool same(const ibv_gid& left, const ibv_gid& right) noexcept {
  return std::memcmp(left.raw, right.raw, sizeof(left.raw)) == 0;
}

std::uint64_t soft_device::guid() const noexcept {
  // An EUI-64 made from the locally administered MAC address 02:53:56:00:00:<number>, with the
  // local bit inverted, as the kernel does.
  return 0x0053'56ff'fe00'0000U + number;
}

const device_description& soft_device::description() const noexcept {
  // The description is never null for a number below `device_count`.
  return *described(number);
}

bool soft_device::has_ethernet() const noexcept {
  for (unsigned counted = 1; has_port(counted); ++counted)
    if (is_ethernet(counted)) return true;
  return false;
}

std::uint32_t soft_device::longest_frame(unsigned counted) const noexcept {
  // Ethernet's usual MTU, the number of bytes that the kernel adds to RoCE's MTU for headers, and
  // the size of an Ethernet header with a VLAN tag.
  constexpr std::uint32_t usual_mtu = 1500;
  constexpr std::uint32_t roce_headers = 96;
  constexpr std::uint32_t own_header = 18;
  return std::max(usual_mtu, (128U << port(counted).mtu) + roce_headers) + own_header;
}

unsigned device_count() noexcept { return static_cast<unsigned>(configured().devices.size()); }

soft_device& device_at(unsigned number) noexcept { return table().devices[number]; }

const soft_device* soft_device_of(const ibv_device* device) noexcept {
  for (const soft_device& candidate : table().devices)
    if (&candidate.verbs == device) return &candidate;
  return nullptr;
}

std::optional<gid_entry> gid_at(unsigned device, unsigned port, unsigned index) noexcept {
  const device_description* known = described(device);
  if (known == nullptr || port > known->port_count || index >= limits::gid_entries)
    return std::nullopt;
  const port_description& own = known->ports[port - 1];
  if (own.gids) return (*own.gids)[index];
  const std::uint64_t guid = device_at(device).guid() + (port - 1) * std::uint64_t{256};
  if (own.layer == link_layer::infiniband) {
    if (index != 0) return std::nullopt;
    return gid_entry{link_local_gid(guid), network::infiniband};
  }
  if (index >= ethernet_gids) return std::nullopt;
  const network type = index % 2 == 0 ? network::roce_v1 : network::roce_v2;
  switch (index / 2) {
    case 0:
      return gid_entry{link_local_gid(guid), type};
    case 1:
      return gid_entry{ipv4_gid(device, port), type};
    default:
      return gid_entry{unique_local_gid(device, port), type};
  }
}

std::optional<station> station_of_gid(const ibv_gid& gid, link_layer layer) noexcept {
  // All numbers are searched, not only those of this process's devices, because a peer may have
  // more devices.
  for (unsigned number = 0; number < max_devices; ++number) {
    const device_description* known = described(number);
    if (known == nullptr) break;
    for (unsigned port = 1; port <= known->port_count; ++port) {
      if (known->ports[port - 1].layer != layer) continue;
      for (unsigned index = 0; index < limits::gid_entries; ++index)
        if (const auto entry = gid_at(number, port, index); entry && same(entry->gid, gid))
          return station_of(number, port);
    }
  }
  return std::nullopt;
}

std::optional<station> station_of_lid(std::uint16_t lid) noexcept {
  if (lid < first_lid || lid >= first_lid + max_ports * max_devices) return std::nullopt;
  const auto found = static_cast<station>(lid - first_lid);
  const device_description* known = described(found % max_devices);
  const unsigned port = found / max_devices;
  if (known == nullptr || port >= known->port_count ||
      known->ports[port].layer != link_layer::infiniband)
    return std::nullopt;
  return found;
}

std::uint16_t lid_of(station port) noexcept { return static_cast<std::uint16_t>(first_lid + port); }

void describe_device(const soft_device& device, ibv_device_attr& attributes) noexcept {
  const device_description& known = device.description();
  const device_limits& most = known.most;
  const auto number = [](std::uint32_t limit) { return static_cast<int>(limit); };
  attributes = {};
  std::snprintf(attributes.fw_ver, sizeof(attributes.fw_ver), "%s", SOFTVERBS_VERSION);
  attributes.node_guid = htobe64(device.guid());
  attributes.sys_image_guid = htobe64(device.guid());
  attributes.vendor_id = vendor;
  attributes.vendor_part_id = vendor_part;
  attributes.max_mr_size = limits::region_bytes;
  attributes.page_size_cap = 0xffff'f000U;
  attributes.max_qp = number(most.queue_pairs);
  attributes.max_qp_wr = number(most.work_requests);
  attributes.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                                IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_BAD_QKEY_CNTR |
                                IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                                IBV_DEVICE_XRC;
  if (device.has_ethernet()) {
    attributes.device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
    attributes.max_raw_ethy_qp = number(most.queue_pairs);
  }
  if (known.has_windows)
    attributes.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attributes.max_sge = number(most.gather_entries);
  attributes.max_sge_rd = number(most.gather_entries);
  attributes.max_srq = number(most.shared_receive_queues);
  attributes.max_srq_wr = number(most.work_requests);
  attributes.max_srq_sge = number(most.gather_entries);
  attributes.max_cq = number(most.completion_queues);
  attributes.max_cqe = number(most.completion_entries);
  attributes.max_mr = number(most.memory_regions);
  attributes.max_mw = known.has_windows ? number(most.memory_regions) : 0;
  attributes.max_pd = number(most.protection_domains);
  attributes.max_qp_rd_atom = number(most.outstanding_reads);
  attributes.max_res_rd_atom = number(most.outstanding_reads * most.queue_pairs);
  attributes.max_qp_init_rd_atom = number(most.outstanding_reads);
  attributes.atomic_cap = known.has_atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attributes.max_mcast_grp = limits::multicast_groups;
  attributes.max_mcast_qp_attach = limits::multicast_members;
  attributes.max_total_mcast_qp_attach = limits::multicast_groups * limits::multicast_members;
  attributes.max_ah = number(most.address_handles);
  attributes.max_pkeys = 1;
  attributes.local_ca_ack_delay = 15;
  attributes.phys_port_cnt = static_cast<std::uint8_t>(known.port_count);
}

void describe_port(const soft_device& device, unsigned port, ibv_port_attr& attributes) noexcept {
  attributes = {};
  attributes.state = IBV_PORT_ACTIVE;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = device.port(port).mtu;
  attributes.gid_tbl_len = static_cast<int>(limits::gid_entries);
  attributes.port_cap_flags = IBV_PORT_CM_SUP;
  attributes.max_msg_sz = limits::message_bytes;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.active_width = 2;   // 4x
  attributes.active_speed = 32;  // 25 Gb/s per lane
  attributes.phys_state = 5;     // link up
  if (device.is_ethernet(port)) {
    attributes.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
  } else {
    attributes.lid = lid_of(station_of(device.number, port));
    attributes.sm_lid = subnet_manager_lid;
    attributes.subnet_timeout = 18;
    attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  }
}

}  // namespace softverbs
