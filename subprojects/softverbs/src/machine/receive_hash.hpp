// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine/flow_filter.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// Which of several queues a frame is for: Toeplitz' hash of what a program has chosen of its
/// headers.
class receive_hash {
 public:
  static constexpr std::size_t key_bytes = 40;
  /// Of ibv_rx_hash_fields.
  static constexpr std::uint64_t known_fields =
      IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6 |
      IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP |
      IBV_RX_HASH_DST_PORT_UDP;

  /// Whether there is such a one for that many queues: 0 or an errno, in the order in which drivers
  /// look.
  static int check(const ibv_rx_hash_conf& asked, std::size_t queues) noexcept;

  explicit receive_hash(const ibv_rx_hash_conf& asked) noexcept;

  /// Of what the frame has of that, in the order of addresses and ports, sources first; 0 if it has
  /// none.
  std::uint32_t of(const frame_headers& frame) const noexcept;

 private:
  std::array<std::uint8_t, key_bytes> key_;
  std::uint64_t fields_;
};

}  // namespace softverbs
