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

/// How packets find their way: RoCE's two encapsulations don't understand each
/// other, nor InfiniBand's.
enum class network : std::uint8_t { infiniband, roce_v1, roce_v2 };

/// The most devices that one process may have, and ports of each.
inline constexpr unsigned max_devices = 64;
inline constexpr unsigned max_ports = 2;

/// What the device can do at most, whatever is configured.
namespace limits {
inline constexpr int queue_pairs = 16384 - 1;
inline constexpr std::uint32_t work_requests = 16384;
inline constexpr std::uint32_t gather_entries = 30;
inline constexpr std::uint32_t inline_data = 256;
inline constexpr int shared_receive_queues = 16384;
/// Which have the numbers of queue pairs: of both together there are no more in a process.
inline constexpr int receive_work_queues = queue_pairs;
inline constexpr int indirection_tables = 4096;
/// Of each, as a power of two.
inline constexpr std::uint32_t indirection_bits = 11;
inline constexpr int completion_queues = 65536;
inline constexpr int completion_entries = (1 << 22) - 1;
inline constexpr int memory_regions = 1 << 20;
inline constexpr std::uint64_t region_bytes = std::uint64_t{1} << 40;
/// Allocated through one open device.
inline constexpr std::uint32_t device_memory = std::uint32_t{4} << 20;
inline constexpr std::uint32_t message_bytes = std::uint32_t{1} << 30;
inline constexpr std::uint32_t datagram_bytes = 4096;
/// Of the Ethernet that carries RoCE's largest datagrams, with a VLAN tag.
inline constexpr std::uint32_t frame_bytes = datagram_bytes + 96 + 18;
/// Of a process.
inline constexpr std::size_t flow_rules = std::size_t{1} << 16;
inline constexpr int protection_domains = 32768;
inline constexpr int outstanding_reads = 16;
inline constexpr int address_handles = 1 << 20;
inline constexpr int multicast_groups = 256;
inline constexpr int multicast_members = 64;
inline constexpr int completion_vectors = 4;
inline constexpr unsigned gid_entries = 16;
/// Linux can't have more.
inline constexpr std::uint32_t numa_nodes = 1024;
}  // namespace limits

/// What one device grants at most.
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
  /// Of the network interface that it belongs to; 0 for none that could be told.
  std::uint32_t interface = 0;
};
using gid_table = std::array<std::optional<gid_entry>, limits::gid_entries>;

struct port_description {
  link_layer layer = link_layer::ethernet;
  ibv_mtu mtu = IBV_MTU_4096;
  /// Until `port-up`.
  bool starts_down = false;
  /// Instead of the usual one.
  std::optional<gid_table> gids;
};

struct device_description {
  unsigned port_count = 1;
  std::array<port_description, max_ports> ports;
  device_limits most;
  bool has_atomics = true;
  bool has_windows = true;
  /// What verbs.h calls with structures that grow: ibv_create_cq_ex and its like.
  bool has_extended = true;
  /// That it is near to, none if all are as far.
  std::optional<std::uint32_t> numa_node;
};

/// The devices of a process.
struct configuration {
  std::vector<device_description> devices;
  /// Of what the file says; 0 if there is none. Processes with another one have other devices.
  std::uint32_t fingerprint = 0;
  /// With other processes; without, all goes through sockets. No matter of the file.
  bool shares_memory = true;
};

/// More than this is no configuration, in bytes.
inline constexpr std::size_t longest_configuration = std::size_t{1} << 20;

/// What is wrong with a configuration, and in which line, from 1 on.
struct configuration_problem {
  unsigned line = 0;
  std::string text;
};

/// Reads what README.md describes under "Devices that differ". Ports that don't say have that link
/// layer. None if it makes no sense.
std::optional<configuration> read_configuration(std::string_view text, link_layer usual,
                                                configuration_problem& problem);

}  // namespace softverbs
