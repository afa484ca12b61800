// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

/// Declarations that older headers of libibverbs lack, with the values that its ABI defines.
/// Programs built with newer headers can therefore use these features, whatever headers softverbs
/// was built with.
namespace softverbs::newer {

// Available since rdma-core 44.
inline constexpr auto wr_atomic_write = static_cast<ibv_wr_opcode>(15);
inline constexpr auto wc_atomic_write = static_cast<ibv_wc_opcode>(9);
inline constexpr std::uint64_t qp_ex_with_atomic_write = 1U << 12;
/// A bit of ibv_device_attr_ex::device_cap_flags_ex. Only the kernel's header has a name for it.
inline constexpr std::uint64_t device_atomic_write = std::uint64_t{1} << 40;

// Available since rdma-core 45.
inline constexpr auto wr_flush = static_cast<ibv_wr_opcode>(14);
inline constexpr auto wc_flush = static_cast<ibv_wc_opcode>(8);
inline constexpr std::uint64_t qp_ex_with_flush = 1U << 11;
/// Bits of ibv_device_attr_ex::device_cap_flags_ex, one for each placement of a flush.
inline constexpr std::uint64_t device_flush = std::uint64_t{3} << 38;

/// Bits of ibv_odp_caps::per_transport_caps, available since rdma-core 58.
inline constexpr std::uint32_t odp_flush = 1U << 6;
inline constexpr std::uint32_t odp_atomic_write = 1U << 7;

/// The placements of a flush, which are bits of ibv_placement_type.
inline constexpr std::uint8_t flush_global = 1;
inline constexpr std::uint8_t flush_persistent = 2;
/// The range of a flush, which is an ibv_selectivity_level.
inline constexpr std::uint8_t flush_range = 0;
inline constexpr std::uint8_t flush_region = 1;

/// The bits of ibv_access_flags that a flush with these placements requires.
constexpr unsigned access_to_flush(unsigned placements) noexcept { return placements << 8; }

/// The offset of ibv_port_attr::active_speed_ex, which newer headers declare after the last field
/// that older headers have. The field has the same meaning as active_speed, but is wider.
inline constexpr std::size_t port_speed_offset = 52;
static_assert(port_speed_offset >=
              offsetof(ibv_port_attr, port_cap_flags2) + sizeof(ibv_port_attr::port_cap_flags2));

// Bits of ibv_mr_init_attr::comp_mask, for ibv_reg_mr_ex. They were added in IBVERBS_1.15, except
// `mr_buffer`, which was added in IBVERBS_1.17.
inline constexpr std::uint64_t mr_iova = 1U << 0;
inline constexpr std::uint64_t mr_address = 1U << 1;
inline constexpr std::uint64_t mr_descriptor = 1U << 2;
inline constexpr std::uint64_t mr_offset = 1U << 3;
inline constexpr std::uint64_t mr_buffer = 1U << 5;
inline constexpr std::uint64_t known_mr_fields =
    mr_iova | mr_address | mr_descriptor | mr_offset | mr_buffer;

/// The layout of ibv_mr_init_attr. In programs built with older headers it ends before `buffer`, so
/// `buffer` may be read only if its bit is set in `comp_mask`.
struct mr_init_attr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* address;
  int descriptor;
  std::uint64_t offset;
  void* dma_handle;
  void* buffer;
};

// Completion counters, since IBVERBS_1.18: ibv_comp_cntr and the arguments of its functions.

struct comp_cntr {
  ibv_context* context;
  std::uint32_t handle;
};

inline constexpr std::uint32_t comp_cntr_of_requests = 0;
inline constexpr std::uint32_t comp_cntr_of_bytes = 1;

struct comp_cntr_init_attr {
  std::uint32_t comp_mask;
  std::uint32_t type;
  std::uint32_t flags;
};

struct comp_cntr_caps {
  std::uint64_t max_value;
  std::uint32_t max_counters;
  std::uint32_t attach_operations;
};

struct comp_cntr_attach_attr {
  std::uint32_t comp_mask;
  std::uint32_t op_mask;
};

/// The members of ibv_qp_ex after wr_abort.
struct qp_functions {
  void (*wr_atomic_write)(ibv_qp_ex* pair, std::uint32_t rkey, std::uint64_t address,
                          const void* value);
  void (*wr_flush)(ibv_qp_ex* pair, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                   std::uint8_t placements, std::uint8_t level);
};

inline constexpr std::size_t qp_functions_offset =
    offsetof(ibv_qp_ex, wr_abort) + sizeof(ibv_qp_ex::wr_abort);

/// Returns the part of a queue pair that `qp_functions` describes. The queue pair must have been
/// created with room for it.
inline qp_functions& functions_of(ibv_qp_ex& pair) noexcept {
  return *reinterpret_cast<qp_functions*>(reinterpret_cast<std::byte*>(&pair) +
                                          qp_functions_offset);
}

}  // namespace softverbs::newer
