// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

enum class link_layer : std::uint8_t { ethernet, infiniband };

/// The encapsulation of packets, which on Ethernet follows from the type of the source GID.
/// Connected queue pairs with different encapsulations can't communicate.
enum class network : std::uint8_t { infiniband, roce_v1, roce_v2 };

/// The maximum number of devices in a process, and the maximum number of ports on a device.
inline constexpr unsigned max_devices = 64;
inline constexpr unsigned max_ports = 2;

/// The capabilities of the device, which no configuration can exceed.
namespace limits {
inline constexpr int queue_pairs = 16384 - 1;
inline constexpr std::uint32_t work_requests = 32768;
inline constexpr std::uint32_t gather_entries = 30;
inline constexpr std::uint32_t inline_data = 256;
inline constexpr int shared_receive_queues = 16384;
/// Queue pairs and receive work queues of a process share a range of numbers, so a process can't
/// have the maximum of both.
inline constexpr int receive_work_queues = queue_pairs;
inline constexpr int indirection_tables = 4096;
/// The maximum size of an indirection table is 2 to this power.
inline constexpr std::uint32_t indirection_bits = 11;
inline constexpr int completion_queues = 65536;
inline constexpr int completion_entries = (1 << 22) - 1;
inline constexpr int memory_regions = (1 << 20) - 1;
inline constexpr std::uint64_t region_bytes = std::uint64_t{1} << 40;
/// The maximum number of bytes of device memory that can be allocated through one open device.
inline constexpr std::uint32_t device_memory = std::uint32_t{4} << 20;
inline constexpr std::uint32_t message_bytes = std::uint32_t{1} << 30;
inline constexpr std::uint32_t datagram_bytes = 4096;
/// The maximum size of a frame on any port, in bytes: the largest MTU of RoCE, the kernel's
/// allowance for RoCE's headers, and an Ethernet header with a VLAN tag.
inline constexpr std::uint32_t frame_bytes = datagram_bytes + 96 + 18;
/// The maximum number of flow rules in a process.
inline constexpr std::size_t flow_rules = std::size_t{1} << 16;
inline constexpr int protection_domains = 32768;
inline constexpr int outstanding_reads = 16;
inline constexpr int address_handles = 1 << 20;
inline constexpr int multicast_groups = 256;
inline constexpr int multicast_members = 64;
inline constexpr int completion_vectors = 4;
inline constexpr unsigned gid_entries = 16;
/// The maximum number that Linux supports.
inline constexpr std::uint32_t numa_nodes = 1024;
}  // namespace limits

/// The limits of one device.
struct device_limits {
  std::uint32_t queue_pairs = limits::queue_pairs;
  std::uint32_t work_requests = limits::work_requests;
  std::uint32_t gather_entries = limits::gather_entries;
  std::uint32_t inline_data = limits::inline_data;
  std::uint32_t shared_receive_queues = limits::shared_receive_queues;
  std::uint32_t receive_work_queues = limits::receive_work_queues;
  std::uint32_t indirection_tables = limits::indirection_tables;
  std::uint32_t completion_queues = limits::completion_queues;
  std::uint32_t completion_entries = limits::completion_entries;
  std::uint32_t memory_regions = limits::memory_regions;
  std::uint32_t protection_domains = limits::protection_domains;
  std::uint32_t outstanding_reads = limits::outstanding_reads;
  std::uint32_t address_handles = limits::address_handles;
  std::uint32_t device_memory = limits::device_memory;
};

/// One entry of a port's GID table.
struct gid_entry {
  ibv_gid gid;
  softverbs::network type;
  /// The index of the network interface that the address belongs to; 0 if none is configured.
  std::uint32_t interface = 0;
};
using gid_table = std::array<std::optional<gid_entry>, limits::gid_entries>;

struct port_description {
  link_layer layer = link_layer::ethernet;
  ibv_mtu mtu = IBV_MTU_4096;
  /// True if the port is down at first, until the fault `port-up` is injected.
  bool starts_down = false;
  /// The GID table of the port, if it isn't the default one.
  std::optional<gid_table> gids;
};

struct device_description {
  unsigned port_count = 1;
  std::array<port_description, max_ports> ports;
  device_limits most;
  bool has_atomics = true;
  bool has_windows = true;
  /// False if the configuration disables extended verbs, such as ibv_create_cq_ex.
  bool has_extended = true;
  /// The NUMA node nearest to the device; empty if none is configured.
  std::optional<std::uint32_t> numa_node;
};

/// The devices of a process.
struct configuration {
  std::vector<device_description> devices;
  /// A hash of SOFTVERBS_LINK_LAYER and of the sections and settings in the configuration file; 0
  /// without a file. Processes with different fingerprints can't reach each other.
  std::uint32_t fingerprint = 0;
  /// True if memory is shared with other processes. Otherwise, all packets go through sockets. Only
  /// an environment variable sets this, not the file.
  bool shares_memory = true;
};

/// The maximum size of a configuration file, in bytes.
inline constexpr std::size_t longest_configuration = std::size_t{1} << 20;

/// The reason why a configuration can't be read. `line` is counted from 1, and is 0 if the
/// configuration is empty.
struct configuration_problem {
  unsigned line = 0;
  std::string text;
};

/// Reads the format that `docs/configuration.md` describes. `usual` is the link layer of ports
/// whose section doesn't name a link layer. Returns nothing, and sets `problem`, if the text is not
/// valid.
std::optional<configuration> read_configuration(std::string_view text, link_layer usual,
                                                configuration_problem& problem);

}  // namespace softverbs
