// SPDX-License-Identifier: Apache-2.0
/// \file
/// A model of how much memory connections use. docs/scale.cpp prints the tables in
/// docs/scale.md from it. groups.cpp compares the model with measurements on the software device.
/// The sources of the numbers for NICs are named here or in docs/scale.md. Sizes are in bytes, on
/// 64-bit machines.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace verbspp::scale {

/// The capacities with which a channel is built.
struct channel_size {
  std::uint64_t sends = 16;             ///< `max_send_work_requests`
  std::uint64_t receives = 16;          ///< `max_receive_work_requests`
  std::uint64_t send_elements = 16;     ///< `max_send_elements`
  std::uint64_t receive_elements = 16;  ///< `max_receive_elements`
  /// True if the group receives into a pool, in which case its channels have no receives.
  bool has_pool = false;
};

/// The relative tolerance for measured sizes, which depend on how allocators round and on the
/// layout that the compiler chooses.
constexpr double tolerance = 0.1;

// The library

/// The heap memory that a channel in a group uses. It consists of the channel, its row in the hub,
/// a slot for each receive and for each untaken result, a record for each send and for each send in
/// a batch, and the completions that the hub has polled for the channel.
[[nodiscard]] constexpr std::uint64_t of_library(const channel_size& size) {
  const std::uint64_t receives = size.has_pool ? 0 : size.receives;
  const std::uint64_t slots = receives + std::clamp<std::uint64_t>(receives, 16, 1024);
  const std::uint64_t records = 2 * std::bit_ceil(size.sends);
  const std::uint64_t completions = std::bit_ceil(size.sends + receives + 1);
  return 3200 + slots * 64 + records * 48 + completions * 48;
}

/// The capacity that a group's completion queue needs, without the receives of a pool.
[[nodiscard]] constexpr std::uint64_t completions_of(const channel_size& size,
                                                     std::uint64_t peers) {
  return peers * (size.sends + size.receives);
}

// The software device

[[nodiscard]] constexpr std::uint64_t of_softverbs_queue_pair(const channel_size& size) {
  const std::uint64_t receives = size.has_pool ? 0 : size.receives;
  return 1184 + size.sends * (136 + 16 * size.send_elements) +
         receives * (33 + 16 * size.receive_elements);
}
[[nodiscard]] constexpr std::uint64_t of_softverbs_completions(std::uint64_t completions) {
  return (std::bit_ceil(completions + 1) - 1) * 104;
}

// The memory that NICs of the mlx5 driver use in the process. Source: providers/mlx5 in rdma-core
// at 691953d8d (August 2026)

constexpr std::uint64_t mlx5_block = 64;    ///< MLX5_SEND_WQE_BB
constexpr std::uint64_t mlx5_page = 4096;   ///< MLX5_ADAPTER_PAGE_SIZE
constexpr std::uint64_t mlx5_segment = 16;  ///< mlx5_wqe_data_seg, one for each element
/// `_sq_overhead` for an RC queue pair that was created by ibv_create_qp and may bind memory
/// windows. It consists of the segments mlx5_wqe_ctrl_seg, mlx5_wqe_umr_ctrl_seg and
/// mlx5_wqe_mkey_context_seg, and 64 more bytes.
constexpr std::uint64_t mlx5_send_overhead = 16 + 48 + 64 + 64;

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}
/// The memory for a queue pair. It consists of the rings, the arrays for each request
/// (`mlx5_alloc_qp_buf`), and the doorbell record, which uses a cache line. `mlx5_calc_sq_size` and
/// `mlx5_calc_rq_size` calculate the sizes of the rings, which are rounded up to whole pages
/// together.
struct mlx5_queue_pair {
  std::uint64_t rings;   ///< registered, so they count towards the limit on locked memory
  std::uint64_t others;  ///< the arrays and the doorbell record
};
[[nodiscard]] constexpr mlx5_queue_pair parts_of_mlx5_queue_pair(const channel_size& size) {
  const std::uint64_t request =
      round_up(mlx5_send_overhead + size.send_elements * mlx5_segment, mlx5_block);
  const std::uint64_t sends = std::bit_ceil(size.sends * request);
  const std::uint64_t places = size.has_pool ? 0 : std::bit_ceil(size.receives);
  const std::uint64_t receives = places * std::bit_ceil(size.receive_elements * mlx5_segment);
  const std::uint64_t arrays = sends / mlx5_block * (8 + 4 + 4) + places * 8;
  return {.rings = round_up(sends + receives, mlx5_page), .others = arrays + 64};
}
[[nodiscard]] constexpr std::uint64_t of_mlx5_queue_pair(const channel_size& size) {
  const mlx5_queue_pair parts = parts_of_mlx5_queue_pair(size);
  return parts.rings + parts.others;
}
/// The size that `mlx5_alloc_cq_buf` calculates for entries of the usual 64 bytes (`get_cqe_size`).
[[nodiscard]] constexpr std::uint64_t of_mlx5_completions(std::uint64_t completions) {
  return round_up(std::bit_ceil(completions + 1) * 64, mlx5_page);
}

/// The context that the NIC keeps for each queue pair in host memory, and caches.
/// `mlx5_ifc_qpc_bits` in rdma-core's mlx5_ifc.h has 0x740 bits, which are rounded up to a power of
/// two.
constexpr std::uint64_t mlx5_context = std::bit_ceil<std::uint64_t>(0x740 / 8);

/// The size of `struct mlx5_ah`, rdma-core's address handle, on x86-64: one for each peer to which
/// datagrams are sent.
constexpr std::uint64_t mlx5_address_handle = 136;

// Limits and their sources

/// MLOCK_LIMIT in Linux since 5.16, which applies to processes without CAP_IPC_LOCK.
constexpr std::uint64_t usual_locked_memory = 8 << 20;
/// The usual soft limit on open files, for services of systemd and in login shells.
constexpr std::uint64_t usual_descriptors = 1024;
/// max_cqe and max_qp of a Connect-IB NIC, and of a Broadcom NIC from 2025.
constexpr std::uint64_t connect_ib_completions = 4194303;
constexpr std::uint64_t connect_ib_queue_pairs = 262144;
constexpr std::uint64_t broadcom_completions = 8388607;
constexpr std::uint64_t broadcom_queue_pairs = 131073;
/// The number of connections at which NICs drop to half of their rate, according to measurements
/// (PipeDevice, CoNEXT 2022).
constexpr std::uint64_t connections_of_half_the_rate = 4096;
/// The largest number of channels that a hub can have.
constexpr std::uint64_t most_channels = 65535;

/// The memory for each peer that counts towards the limit on locked memory. It consists of the
/// rings, the completions, and, without a pool, the memory for the peer's messages.
[[nodiscard]] constexpr std::uint64_t locked_of(const channel_size& size,
                                                std::uint64_t message_size) {
  return parts_of_mlx5_queue_pair(size).rings + (size.sends + size.receives) * 64 +
         (size.has_pool ? 0 : size.receives * message_size);
}

}  // namespace verbspp::scale
