// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "machine/flow_filter.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace softverbs {

/// A Toeplitz hash of the header fields that a program has chosen. It selects one of several queues
/// for a frame.
class receive_hash {
 public:
  static constexpr std::size_t key_bytes = 40;
  /// Bits of ibv_rx_hash_fields.
  static constexpr std::uint64_t known_fields =
      IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6 |
      IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP |
      IBV_RX_HASH_DST_PORT_UDP;

  /// Checks whether a configuration is valid for this number of queues. Returns 0 or an errno
  /// value.
  static int check(const ibv_rx_hash_conf& asked, std::size_t queues) noexcept;

  explicit receive_hash(const ibv_rx_hash_conf& asked) noexcept;

  /// Returns the hash of the chosen fields that the frame has: addresses, then ports, each source
  /// before its destination. Returns 0 if the frame has none of them.
  std::uint32_t of(const frame_headers& frame) const noexcept;

 private:
  std::array<std::uint8_t, key_bytes> key_;
  std::uint64_t fields_;
};

}  // namespace softverbs
