// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/bounded.hpp>

#include <cstdint>

namespace verbspp {

namespace detail {
struct queue_pair_number_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0xffffff;
  static constexpr const char* name = "queue pair number (24 bits)";
};
struct queue_key_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0xffffffff;
  static constexpr const char* name = "queue key (32 bits)";
};
}  // namespace detail

using queue_pair_number = bounded<detail::queue_pair_number_traits>;

namespace detail {
/// Extracts the queue pair number from a 32-bit field that a driver wrote. The number is in the low
/// 24 bits.
[[nodiscard]] constexpr queue_pair_number queue_pair_number_of(std::uint32_t field) noexcept {
  return queue_pair_number::assume(field & queue_pair_number::maximum);
}
}  // namespace detail

/// The key (qkey) that a datagram must carry to be accepted by a UD queue pair.
///
/// A key with the highest bit set is privileged: by default, Linux lets only a process with
/// CAP_NET_RAW assign it to a queue pair (`rdma system show`), and a sender that specifies such a
/// key sends the qkey of its own queue pair instead.
using queue_key = bounded<detail::queue_key_traits>;

/// The queue pair number for datagrams to a multicast group.
inline constexpr queue_pair_number multicast_queue_pair_number = 0xffffff;

}  // namespace verbspp
