// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/environment.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// What the device can do at most.
namespace limits {
inline constexpr int queue_pairs = 16384 - 1;
inline constexpr std::uint32_t work_requests = 16384;
inline constexpr std::uint32_t gather_entries = 30;
inline constexpr std::uint32_t inline_data = 256;
inline constexpr int shared_receive_queues = 16384;
inline constexpr int completion_queues = 65536;
inline constexpr int completion_entries = (1 << 22) - 1;
inline constexpr int memory_regions = 1 << 20;
inline constexpr std::uint64_t region_bytes = std::uint64_t{1} << 40;
inline constexpr std::uint32_t message_bytes = std::uint32_t{1} << 30;
inline constexpr std::uint32_t datagram_bytes = 4096;
inline constexpr int protection_domains = 32768;
inline constexpr int outstanding_reads = 16;
inline constexpr int address_handles = 1 << 20;
inline constexpr int multicast_groups = 256;
inline constexpr int multicast_members = 64;
inline constexpr int completion_vectors = 1;
inline constexpr unsigned gid_entries = 16;
}  // namespace limits

/// How packets find their way: RoCE's two encapsulations don't understand each
/// other, nor InfiniBand's.
enum class network : std::uint8_t { infiniband, roce_v1, roce_v2 };

/// One software device. Its addresses depend on its number alone, so that they
/// are the same in all processes of the host.
struct soft_device {
  ibv_device verbs;
  // Providers ask whether a device is theirs by reading what libibverbs keeps
  // behind ibv_device; zeros say no.
  std::byte private_to_libibverbs[1024];
  std::uint8_t number;

  std::uint64_t guid() const noexcept;
  std::uint16_t lid() const noexcept;
};

/// The device behind a verbs handle, null if it isn't one of ours.
const soft_device* soft_device_of(const ibv_device* device) noexcept;
inline const soft_device* soft_device_of(const ibv_context* context) noexcept {
  return soft_device_of(context->device);
}

unsigned device_count() noexcept;
soft_device& device_at(unsigned number) noexcept;

/// One entry of a port's GID table.
struct gid_entry {
  ibv_gid gid;
  network type;
};

/// Empty entries and indexes behind the table's end give nothing.
std::optional<gid_entry> gid_at(unsigned device, unsigned index) noexcept;

/// Addresses are those of IPv4, in a GID, or of IPv6.
bool is_ipv4(const ibv_gid& gid) noexcept;
bool same(const ibv_gid& left, const ibv_gid& right) noexcept;

/// The number of the device that owns this GID, whichever process it is in.
std::optional<std::uint8_t> device_of_gid(const ibv_gid& gid) noexcept;
std::optional<std::uint8_t> device_of_lid(std::uint16_t lid) noexcept;

void describe_device(const soft_device& device, ibv_device_attr& attributes) noexcept;
void describe_port(const soft_device& device, ibv_port_attr& attributes) noexcept;

}  // namespace softverbs
