// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/newer_verbs.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {

/// The operations that a queue pair counts, as bit numbers of ibv_qp_attach_comp_cntr_op.
enum class counted_operation : std::uint8_t { send = 0, receive = 1, read = 2, write = 4 };
inline constexpr std::size_t counted_operations = 5;
inline constexpr std::uint32_t countable_operations = 0b1'0111;

/// Returns the operation that a send queue's request counts as if it completes with this opcode, or
/// nothing if it is not counted.
constexpr std::optional<counted_operation> counted_as(ibv_wc_opcode opcode) noexcept {
  switch (opcode) {
    case IBV_WC_SEND:
      return counted_operation::send;
    case IBV_WC_RDMA_READ:
      return counted_operation::read;
    case IBV_WC_RDMA_WRITE:
      return counted_operation::write;
    default:
      return std::nullopt;
  }
}

/// Counts completions of queue pairs. Thread-safe.
struct completion_counter final : newer::comp_cntr {
  completion_counter(ibv_context* of, std::uint32_t number, bool of_bytes) noexcept
      : newer::comp_cntr{of, number}, counts_bytes(of_bytes) {}

  void count(bool succeeded, std::uint64_t bytes) noexcept {
    if (succeeded)
      completed += counts_bytes ? bytes : 1;
    else
      ++failed;
  }

  const bool counts_bytes;
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> failed{0};
  /// The number of kinds of operations that this counter counts, added up over all queue pairs.
  std::atomic<std::uint32_t> attached{0};
};

}  // namespace softverbs
