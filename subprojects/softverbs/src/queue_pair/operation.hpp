// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/newer_verbs.hpp"
#include "wire/packet.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softverbs {

constexpr bool with_immediate(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// The transport services that queue pairs use, as bits.
namespace service {
inline constexpr std::uint8_t rc = 1;
inline constexpr std::uint8_t uc = 2;
inline constexpr std::uint8_t ud = 4;
inline constexpr std::uint8_t xrc = 8;
inline constexpr std::uint8_t raw = 16;
inline constexpr std::uint8_t reliable = rc | xrc;
inline constexpr std::uint8_t connected = reliable | uc;
/// All services except raw packets, for which the program constructs the frames.
inline constexpr std::uint8_t all = connected | ud;

constexpr std::uint8_t of(ibv_qp_type type) noexcept {
  switch (type) {
    case IBV_QPT_RC:
      return rc;
    case IBV_QPT_UC:
      return uc;
    case IBV_QPT_UD:
      return ud;
    case IBV_QPT_XRC_SEND:
      return xrc;
    case IBV_QPT_RAW_PACKET:
      return raw;
    default:
      return 0;
  }
}
}  // namespace service

/// The way in which programs can post an operation.
enum class posting : std::uint8_t {
  never,
  by_functions,  ///< only by functions of ibv_qp_ex
  always,        ///< also by ibv_post_send
};

/// The properties of an opcode that a requester needs.
struct operation {
  posting how = posting::never;
  std::uint8_t services = 0;
  ibv_wc_opcode completes_as = IBV_WC_SEND;
  /// The kind of packet that carries the operation on a connection. Local operations have no
  /// packets.
  packet_kind carrier = packet_kind::send;
  /// The flag in ibv_qp_init_attr_ex::send_ops_flags that requests the function for this operation.
  std::uint64_t send_ops_flag = 0;
  bool local = false;
  /// True if requests may contain gather or scatter entries.
  bool takes_memory = true;

  /// True if the request is completed by a response, not by an acknowledgement.
  constexpr bool fetches() const noexcept { return softverbs::fetches(carrier); }
  constexpr bool has_operands() const noexcept { return carries_operands(carrier); }
};

/// The operations that the device supports, by opcode.
class operation_table {
 public:
  constexpr operation_table() {
    add(IBV_WR_SEND, service::all | service::raw, IBV_WC_SEND, packet_kind::send,
        IBV_QP_EX_WITH_SEND);
    add(IBV_WR_SEND_WITH_IMM, service::all, IBV_WC_SEND, packet_kind::send,
        IBV_QP_EX_WITH_SEND_WITH_IMM);
    add(IBV_WR_SEND_WITH_INV, service::reliable, IBV_WC_SEND, packet_kind::send,
        IBV_QP_EX_WITH_SEND_WITH_INV);
    add(IBV_WR_RDMA_WRITE, service::connected, IBV_WC_RDMA_WRITE, packet_kind::write,
        IBV_QP_EX_WITH_RDMA_WRITE);
    add(IBV_WR_RDMA_WRITE_WITH_IMM, service::connected, IBV_WC_RDMA_WRITE, packet_kind::write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
    add(IBV_WR_RDMA_READ, service::reliable, IBV_WC_RDMA_READ, packet_kind::read_request,
        IBV_QP_EX_WITH_RDMA_READ);
    add(IBV_WR_ATOMIC_CMP_AND_SWP, service::reliable, IBV_WC_COMP_SWAP, packet_kind::compare_swap,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
    add(IBV_WR_ATOMIC_FETCH_AND_ADD, service::reliable, IBV_WC_FETCH_ADD, packet_kind::fetch_add,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
    operation& bind = add(IBV_WR_BIND_MW, service::connected, IBV_WC_BIND_MW, packet_kind::send,
                          IBV_QP_EX_WITH_BIND_MW);
    bind.local = true;
    bind.takes_memory = false;
    add(IBV_WR_LOCAL_INV, service::connected, IBV_WC_LOCAL_INV, packet_kind::send,
        IBV_QP_EX_WITH_LOCAL_INV)
        .local = true;
    operation& write = add(newer::wr_atomic_write, service::reliable, newer::wc_atomic_write,
                           packet_kind::atomic_write, newer::qp_ex_with_atomic_write);
    write.how = posting::by_functions;
    write.takes_memory = false;
    operation& flush = add(newer::wr_flush, service::reliable, newer::wc_flush, packet_kind::flush,
                           newer::qp_ex_with_flush);
    flush.how = posting::by_functions;
    flush.takes_memory = false;
  }

  /// Returns the operation of an opcode. For an unknown opcode, returns an operation that can't be
  /// posted.
  constexpr const operation& operator[](ibv_wr_opcode opcode) const noexcept {
    return rows_[static_cast<unsigned>(opcode) < known ? static_cast<unsigned>(opcode) : known];
  }

  /// Returns the flags of all operations that a service supports.
  constexpr std::uint64_t send_ops_flags(std::uint8_t of_service) const noexcept {
    std::uint64_t flags = 0;
    for (const operation& row : rows_)
      if ((row.services & of_service) != 0) flags |= row.send_ops_flag;
    return flags;
  }

 private:
  static constexpr std::size_t known = 16;

  constexpr operation& add(ibv_wr_opcode opcode, std::uint8_t services, ibv_wc_opcode completes_as,
                           packet_kind carrier, std::uint64_t send_ops_flag) {
    return rows_[opcode] = {posting::always, services, completes_as, carrier, send_ops_flag};
  }

  std::array<operation, known + 1> rows_{};
};

inline constexpr operation_table operations_known;

}  // namespace softverbs
